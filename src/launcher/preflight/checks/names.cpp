// Checks that every node can resolve the names of all other nodes.
#include <algorithm>

#include "base/text/comma_list.hpp"
#include "launcher/preflight/check.hpp"
#include "native/posix/processes/ask_program.hpp"
#include "native/posix/sockets/tcp_address.hpp"

namespace hvd::launcher::preflight {
namespace {

constexpr std::size_t most_names = 32;  // a limit, because each name is a request to the name server

// Returns the addresses of the host: the first word of each line of `getent ahosts`.
std::vector<std::string> addresses_of(const std::string& host) {
  std::string answer = posix::answer_of({"getent", "ahosts", host}, std::chrono::seconds(2), false);
  std::vector<std::string> addresses;
  for (std::size_t at = 0; at < answer.size();) {
    std::string line = answer.substr(at, answer.find('\n', at) - at);
    at += line.size() + 1;
    std::string address = line.substr(0, line.find(' '));
    if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(address);
  }
  return addresses;
}

void gather_names(const Place& place, Facts& facts) {
  std::vector<std::string> own;
  if (auto all = posix::interfaces())
    for (const posix::Interface& interface : *all)
      for (const posix::InterfaceAddress& each : interface.addresses) own.push_back(each.address.host());
  facts.set("addresses", joined(own, ","));
  if (!place.is_first || posix::answer_of({"getent", "ahosts", "localhost"}, std::chrono::seconds(2), false).empty())
    return;
  for (std::size_t at = 0; at < std::min(place.hosts.size(), most_names); ++at)
    facts.set("resolves " + place.hosts[at], joined(addresses_of(place.hosts[at]), ","));
}

bool have_one_in_common(const std::vector<std::string>& some, const std::vector<std::string>& others) {
  return std::ranges::any_of(some, [&](const std::string& each) { return std::ranges::count(others, each) > 0; });
}

void judge_name(const Facts& asked, const Facts& target, const std::string& host, Verdict& verdict) {
  if (!asked.has("resolves " + host) || asked.get("node") == target.get("node")) return;
  auto told = items_of(asked.get("resolves " + host));
  if (have_one_in_common(told, items_of(target.get("addresses")))) return;
  verdict.findings.push_back({Severity::fault, asked.get("host"), "an address of " + host + " for its name",
                              told.empty()
                                  ? "the name " + host + " is not known here"
                                  : host + " is taken for " + joined(told, ", ") + ", which that host does not have",
                              "correct /etc/hosts or the name server of this node (getent ahosts " + host + ")"});
}

}  // namespace

const Check names_check{"names", gather_names, [](const Allocation& allocation) -> Verdict {
                          Verdict verdict{"every node finds the others by name", {}};
                          for (const std::string& host : allocation.hosts)
                            for (const Facts* target : allocation.first_of_each_node()) {
                              if (short_name(target->get("host")) != short_name(host)) continue;
                              for (const Facts* asked : allocation.first_of_each_node())
                                judge_name(*asked, *target, host, verdict);
                            }
                          return verdict;
                        }};

}  // namespace hvd::launcher::preflight
