#include "schedulers/selection/selection.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/panic.hpp"
#include "schedulers/grammar/host_lists.hpp"
#include "schedulers/registry.hpp"

namespace hvd::schedulers {
namespace {

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

Place place_of(const Around& around) {
  return around.scheduler->traits().place;
}

std::vector<Around> all_around(const Environment& environment) {
  std::vector<Around> found;
  for (const Maker& maker : registry()) {
    std::shared_ptr<const Scheduler> scheduler = maker.make();
    if (auto evidence = scheduler->detected(environment))
      found.push_back({maker.name, std::move(scheduler), *evidence});
  }
  std::ranges::stable_sort(found, {}, place_of);
  if (found.empty()) panic("the scheduler \"local\" applies always");
  if (found.size() > 1) found.pop_back();  // the machine itself
  return found;
}

}  // namespace

Around scheduler_around(const Sources& sources) {
  std::vector<Around> found = all_around(sources.environment);
  if (found.size() == 1 || place_of(found.front()) == Place::inside_others) return std::move(found.front());
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

std::vector<const char*> output_files_of_all() {
  std::vector<const char*> all;
  for (const Maker& maker : registry()) {
    const auto scheduler = maker.make();
    for (const char* pattern : scheduler->traits().output_files) all.push_back(pattern);
  }
  return all;
}

}  // namespace hvd::schedulers
