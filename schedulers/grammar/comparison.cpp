#include "schedulers/grammar/comparison.hpp"

#include <algorithm>
#include <utility>

#include "base/counted.hpp"
#include "base/text/number.hpp"
#include "schedulers/grammar/host_lists.hpp"

namespace hvd::schedulers {
namespace {

std::string slots_on(const std::vector<Host>& hosts, const std::string& name) {
  auto found = std::ranges::find_if(hosts, [&](const Host& host) { return is_same_host(host.name, name); });
  return found == hosts.end() ? "no slot" : counted(found->slots, "slot");
}

}  // namespace

void compare_number(Allocation& found, const Environment& environment, const std::string& variable, int expected,
                    const std::string& why) {
  std::string text = environment.get(variable).value_or("");
  if (text.empty() || number_in<int>(text) == expected) return;
  found.contradictions.push_back(variable + "=" + text + ", but " + why);
}

void compare_hosts(Allocation& found, const Result<std::vector<Host>>& others, const std::string& source) {
  if (!others) return found.contradictions.push_back(in(source, others.error()).message);
  for (const std::vector<Host>* hosts : {&std::as_const(found.hosts), &*others})
    for (const Host& host : *hosts) {
      std::string here = slots_on(found.hosts, host.name), there = slots_on(*others, host.name);
      if (here == there) continue;
      return found.contradictions.push_back(source + " has " + there + " on " + host.name + ", but " + found.source +
                                            " has " + here);
    }
}

int slots_of(const std::vector<Host>& hosts) {
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  return slots;
}

}  // namespace hvd::schedulers
