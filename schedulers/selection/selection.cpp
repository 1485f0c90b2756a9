#include "schedulers/selection/selection.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/panic.hpp"
#include "schedulers/grammar/host_lists.hpp"
#include "schedulers/registry.hpp"

namespace hvd::schedulers {
namespace {

// Flux comes first, because an instance of Flux is often a job of another scheduler. Slurm comes next, because on login
// nodes, where salloc leaves its user, no job has this host. The machine itself comes last.
int place_in_order(std::string_view key) {
  if (key == "flux") return 0;
  if (key == "slurm") return 1;
  return key == "local" ? 3 : 2;
}

// What a job's variables tell about its hosts; the last is the strongest evidence that this process is in the job.
enum class Hosts { unknown, others, with_this_host };

const char* text_of(Hosts hosts) {
  switch (hosts) {
    case Hosts::unknown: return "its hosts are not known";
    case Hosts::others: return "its hosts are others";
    case Hosts::with_this_host: break;
  }
  return "this host is in both jobs";
}

Hosts hosts_of(const Scheduler& scheduler, const Sources& sources) {
  Sources without_commands = sources;
  without_commands.ask = [](const std::vector<std::string>&) { return std::string(); };
  auto allocation = scheduler.allocation(without_commands);
  if (!allocation) return Hosts::unknown;
  auto is_this_host = [&](const std::string& name) { return !name.empty() && is_same_host(name, sources.host); };
  const bool is_here =
      is_this_host(allocation->launch_host) ||
      std::ranges::any_of(allocation->hosts, [&](const Host& host) { return is_this_host(host.name); });
  return is_here ? Hosts::with_this_host : Hosts::others;
}

std::vector<Around> all_around(const Environment& environment) {
  std::vector<Maker> makers(registry().begin(), registry().end());
  std::ranges::stable_sort(makers, {}, [](const Maker& maker) { return place_in_order(maker.name); });
  std::vector<Around> found;
  for (const Maker& maker : makers) {
    std::shared_ptr<const Scheduler> scheduler = maker.make();
    if (auto evidence = scheduler->detected(environment))
      found.push_back({maker.name, std::move(scheduler), *evidence});
  }
  if (found.empty()) panic("the scheduler \"local\" applies always");
  if (found.size() > 1) found.pop_back();  // the machine itself
  return found;
}

}  // namespace

Around scheduler_around(const Sources& sources) {
  std::vector<Around> found = all_around(sources.environment);
  if (found.size() == 1 || found.front().key == "flux") return std::move(found.front());
  std::vector<Hosts> hosts;
  for (const Around& around : found) hosts.push_back(hosts_of(*around.scheduler, sources));
  const auto best = static_cast<std::size_t>(std::distance(hosts.begin(), std::ranges::max_element(hosts)));
  for (std::size_t at = 0; at < found.size(); ++at)
    if (at != best)
      found[best].passed_over.push_back(std::string(found[at].scheduler->name()) + " (" + found[at].evidence +
                                        "): " + text_of(hosts[at]));
  return std::move(found[best]);
}

std::vector<std::string_view> prefixes_of_all() {
  std::vector<std::string_view> all;
  for (const Maker& maker : registry()) {
    const auto scheduler = maker.make();
    for (std::string_view prefix : scheduler->traits().prefixes) all.push_back(prefix);
  }
  return all;
}

}  // namespace hvd::schedulers
