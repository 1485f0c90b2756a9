#include "launcher/preflight/page.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/counted.hpp"
#include "base/text/json_text.hpp"

namespace hvd::launcher::preflight {
namespace {

const char* word_for(const Verdict& verdict) {
  if (verdict.findings.empty()) return "OK";
  bool has_fault =
      std::ranges::any_of(verdict.findings, [](const Finding& finding) { return finding.severity == Severity::fault; });
  return has_fault ? "FAULT" : "note";
}

// A finding that is equal for several hosts; it is shown once, with all of these hosts.
struct Shared {
  Finding finding;
  std::vector<std::string> hosts;
};
std::vector<Shared> put_together(const std::vector<Finding>& findings) {
  std::vector<Shared> all;
  for (const Finding& finding : findings) {
    auto same = std::ranges::find_if(all, [&](const Shared& each) {
      return each.finding.severity == finding.severity && each.finding.expected == finding.expected &&
             each.finding.found == finding.found;
    });
    if (same == all.end()) all.push_back({finding, {finding.host}});
    else if (std::ranges::find(same->hosts, finding.host) == same->hosts.end()) same->hosts.push_back(finding.host);
  }
  return all;
}

std::string hosts_text(const std::vector<std::string>& hosts) {
  constexpr std::size_t most = 8;
  std::string text;
  for (std::size_t at = 0; at < std::min(hosts.size(), most); ++at) text += (at == 0 ? "" : ", ") + hosts[at];
  if (hosts.size() > most) text += " and " + std::to_string(hosts.size() - most) + " more";
  return text.empty() ? "the whole job" : text;
}

std::string row(std::string name, std::string word) {
  name.resize(std::max<std::size_t>(name.size(), 11), ' ');
  word.resize(std::max<std::size_t>(word.size(), 6), ' ');
  return name + word;
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", seconds);
  return text;
}

std::size_t count_of(const std::vector<Judged>& all, Severity severity) {
  std::size_t count = 0;
  for (const Judged& each : all)
    count += static_cast<std::size_t>(std::ranges::count(each.verdict.findings, severity, &Finding::severity));
  return count;
}

}  // namespace

std::vector<Judged> judge(const Allocation& allocation) {
  // A probe that hangs has not gathered facts. Only the check of the start judges it, all other checks leave it out.
  Allocation complete = allocation;
  std::erase_if(complete.probes, [](const Facts& probe) { return !probe.has("has_looked"); });
  std::vector<Judged> all;
  for (const Check* check : checks())
    if (check == &start_check) all.push_back({check->name, check->judge(allocation)});
    else if (!complete.probes.empty()) all.push_back({check->name, check->judge(complete)});
  // If a rank was not started, the others cannot meet either. This second finding is removed, because the first one
  // names the cause.
  const bool has_started = all.front().verdict.findings.empty();
  for (Judged& each : all)
    if (!has_started)
      std::erase_if(each.verdict.findings,
                    [&](const Finding& one) { return each.check == world_check.name && one.host.empty(); });
  return all;
}

bool has_fault(const std::vector<Judged>& all) {
  return count_of(all, Severity::fault) > 0;
}

std::string page_of(const std::vector<Judged>& all, const Allocation& allocation, double seconds) {
  std::string text = "preflight of " + counted(static_cast<std::size_t>(allocation.ranks), "rank") + " on " +
                     counted(std::max(allocation.hosts.size(), allocation.by_node().size()), "node") + "\n";
  for (const Judged& each : all) {
    text += row(each.check, word_for(each.verdict));
    if (each.verdict.findings.empty()) {
      text += each.verdict.summary + "\n";
      continue;
    }
    bool is_first = true;
    for (const Shared& shared : put_together(each.verdict.findings)) {
      text += (is_first ? "" : row("", "")) + hosts_text(shared.hosts) + ": " + shared.finding.found + "\n" +
              row("", "") + "  expected: " + shared.finding.expected + "\n" + row("", "") +
              "  remedy: " + shared.finding.remedy + "\n";
      is_first = false;
    }
  }
  const std::size_t faults = count_of(all, Severity::fault), notes = count_of(all, Severity::note);
  return text + (faults > 0 ? counted(faults, "fault") : "no fault") + ", " + counted(notes, "note") + ", in " +
         seconds_text(seconds) + " s (docs/preflight.md tells causes and remedies)\n";
}

std::string json_of(const std::vector<Judged>& all, const Allocation& allocation, double seconds) {
  std::string text = "{\"ranks\": " + std::to_string(allocation.ranks) + ", \"hosts\": [";
  for (std::size_t at = 0; at < allocation.hosts.size(); ++at)
    text += (at == 0 ? "" : ", ") + in_json_quotes(allocation.hosts[at]);
  text += "], \"launcher\": " + in_json_quotes(allocation.launcher) + ", \"seconds\": " + seconds_text(seconds) +
          ", \"ok\": " + (has_fault(all) ? "false" : "true") + ", \"checks\": [";
  for (std::size_t at = 0; at < all.size(); ++at) {
    const Judged& each = all[at];
    const std::string summary = each.verdict.findings.empty() ? each.verdict.summary : "";
    text += std::string(at == 0 ? "" : ",") + "\n  {\"check\": " + in_json_quotes(each.check) +
            ", \"ok\": " + (std::string_view(word_for(each.verdict)) == "FAULT" ? "false" : "true") +
            ", \"summary\": " + in_json_quotes(summary) + ", \"findings\": [";
    for (std::size_t number = 0; number < each.verdict.findings.size(); ++number) {
      const Finding& finding = each.verdict.findings[number];
      text += std::string(number == 0 ? "" : ",") +
              "\n    {\"severity\": " + (finding.severity == Severity::fault ? "\"fault\"" : "\"note\"") +
              ", \"host\": " + in_json_quotes(finding.host) + ", \"expected\": " + in_json_quotes(finding.expected) +
              ", \"found\": " + in_json_quotes(finding.found) + ", \"remedy\": " + in_json_quotes(finding.remedy) + "}";
    }
    text += "]}";
  }
  return text + "\n]}\n";
}

}  // namespace hvd::launcher::preflight
