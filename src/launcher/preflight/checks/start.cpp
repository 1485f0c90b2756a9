// Checks that the launcher started a probe in the place of each rank.
#include <algorithm>

#include "base/counted.hpp"
#include "base/text/comma_list.hpp"
#include "launcher/preflight/check.hpp"

namespace hvd::launcher::preflight {
namespace {

// Returns the hosts of the job from which no probe has answered.
std::vector<std::string> silent_hosts(const Allocation& allocation) {
  std::vector<std::string> silent;
  for (const std::string& host : allocation.hosts) {
    bool is_heard = std::ranges::any_of(allocation.probes, [&](const Facts& probe) {
      return short_name(probe.get("host")) == short_name(host) || probe.get("given_name") == host ||
             std::ranges::count(items_of(probe.get("addresses")), host) > 0;
    });
    if (!is_heard) silent.push_back(host);
  }
  return silent;
}

// True if the text has the name as a whole word.
bool names(std::string_view text, std::string_view name) {
  auto is_part = [](char each) { return std::isalnum(static_cast<unsigned char>(each)) != 0 || each == '-'; };
  for (std::size_t at = 0; (at = text.find(name, at)) != std::string_view::npos; ++at) {
    bool begins = at == 0 || !is_part(text[at - 1]);
    bool ends = at + name.size() == text.size() || !is_part(text[at + name.size()]);
    if (begins && ends) return true;
  }
  return false;
}

// Adds the findings if no probe was started: for the hosts that horovodrun's message names, otherwise for the whole
// job.
void add_failed_start(const Allocation& allocation, Verdict& verdict) {
  std::vector<std::string> named;
  for (const std::string& host : allocation.hosts)
    if (names(allocation.trouble, host)) named.push_back(host);
  if (named.empty()) named.emplace_back();
  for (const std::string& host : named)
    verdict.findings.push_back({Severity::fault, host, "a probe in the place of each rank", allocation.trouble,
                                "do what the message says; `horovodrun --explain` tells how the ranks would start"});
}

void add_silent_host(const Allocation& allocation, const std::string& host, Verdict& verdict) {
  verdict.findings.push_back(
      {Severity::fault, host, "a probe in the place of each rank",
       std::string("no word from this host") + (allocation.is_out_of_time ? " in the time for all checks" : ""),
       "see whether the host is up and takes commands (ssh, srun -w), and leave it out of the job otherwise"});
}

}  // namespace

const Check start_check{
    "start", nullptr, [](const Allocation& allocation) -> Verdict {
      Verdict verdict{allocation.launcher + "; " + counted(allocation.probes.size(), "rank") + " on " +
                          counted(allocation.by_node().size(), "node"),
                      {}};
      if (allocation.probes.empty() && !allocation.trouble.empty()) {
        add_failed_start(allocation, verdict);
        return verdict;
      }
      for (const std::string& host : silent_hosts(allocation)) add_silent_host(allocation, host, verdict);
      for (const Facts& probe : allocation.probes)
        if (!probe.has("is_through"))
          verdict.findings.push_back({Severity::fault, probe.get("host"), "every probe answers in time",
                                      "process " + probe.get("pid") + " began and did not come to its end",
                                      "look at what that process waits for (/proc/PID/stack, a file system that "
                                      "hangs), and leave the host out of the job until it answers"});
      bool is_short = static_cast<int>(allocation.probes.size()) < allocation.ranks;
      if (verdict.findings.empty() && is_short)
        verdict.findings.push_back({Severity::fault, "", counted(static_cast<std::size_t>(allocation.ranks), "rank"),
                                    counted(allocation.probes.size(), "probe") + " came up" +
                                        (allocation.trouble.empty() ? "" : ": " + allocation.trouble),
                                    "see whether each host has as many slots as it is to get ranks"});
      return verdict;
    }};

}  // namespace hvd::launcher::preflight
