#include "collectives/hierarchical/on_device/estimate.hpp"

#include <algorithm>
#include <bit>

#include "collectives/schedule/stage_tasks.hpp"
#include "collectives/selection/selector.hpp"

namespace hvd::collectives::hierarchical {

namespace {

// A smaller share is not cut any more.
constexpr std::int64_t least_share_bytes = 64 << 10;

Collective on_rail(const Collective& collective, const Team& team, std::int64_t count) {
  Collective stage = stage_of(collective, collective.verb, Scales::none, count);
  if (rail_of(collective, team).device == nullptr) stage.device = DeviceKind::host;
  return stage;
}

// What the node's link does, or Cost::impossible().
Cost node_cost(const Collective& collective, const Team& team, Verb verb, std::int64_t count) {
  transport::NativeCollectives* native = team.node->link == nullptr ? nullptr : team.node->link->native();
  if (native == nullptr) return Cost::impossible();
  return native->cost(stage_of(collective, verb, Scales::none, count));
}

// A host link's cost is that of a rail among others, which share the node's adapter.
double seconds_on_rail(const Collective& collective, const Team& team, double share_bytes) {
  if (const Team& rail = rail_of(collective, team); rail.device != nullptr) {
    const auto count = static_cast<std::int64_t>(share_bytes / static_cast<double>(size_of(collective.dtype)));
    return rail.link->native()->cost(on_rail(collective, team, count)).seconds;
  }
  const MessageCost network = network_cost(team.rails);
  const double nodes = team.nodes;
  return 2 * doublings(team.nodes) * network.latency_s +
         2 * (nodes - 1) / nodes * share_bytes * network.seconds_per_byte;
}

}  // namespace

double StageTimes::longest() const {
  return std::max({pack + unpack, node, out, rail, back});
}

StageTimes StageCosts::times(double chunk_bytes, int rails) const {
  const auto seconds = [](const MessageCost& cost, double bytes) {
    return cost.latency_s + bytes * cost.seconds_per_byte;
  };
  const double share_bytes = chunk_bytes / rails;
  StageTimes times;
  times.pack = times.unpack = seconds(pack, chunk_bytes);
  times.node = seconds(node, chunk_bytes);
  times.out = seconds(out, share_bytes);
  times.rail = seconds(rail, share_bytes);
  times.back = seconds(back, share_bytes);
  return times;
}

bool is_possible_on_device(const Collective& collective, const Team& team) {
  const bool is_mine = (collective.verb == Verb::allreduce || collective.verb == Verb::adasum) &&
                       team.device != nullptr && collective.device == team.device->kind();
  if (!is_mine || team.nodes < 2 || team.node == nullptr || team.rail == nullptr) return false;
  if (team.nodes * team.rails != team.size() || team.selector == nullptr) return false;
  if (team.rails > 1)
    for (Verb verb : {Verb::reduce_scatter, Verb::allgather})
      if (!node_cost(collective, team, verb, 1).possible()) return false;
  const Team& rail = rail_of(collective, team);
  if (rail.device != nullptr) {
    transport::NativeCollectives* native = rail.link == nullptr ? nullptr : rail.link->native();
    return collective.verb == Verb::allreduce && native != nullptr &&
           native->cost(on_rail(collective, team, 1)).possible();
  }
  // Adasum exchanges products with the other ranks of the node, too.
  const Team* on_host = team.host == nullptr ? nullptr : team.host->node;
  if (collective.verb == Verb::adasum && team.rails > 1)
    if (!std::has_single_bit(static_cast<unsigned>(team.rails)) || on_host == nullptr || !on_host->has_link())
      return false;
  return team.selector->find(on_rail(collective, team, 1), rail) != nullptr;
}

StageTimes stage_times(const Collective& collective, const Team& team, double chunk_bytes) {
  const double share_bytes = chunk_bytes / team.rails;
  const auto count = static_cast<std::int64_t>(chunk_bytes / static_cast<double>(size_of(collective.dtype)));
  StageTimes times;
  times.pack = times.unpack = device_memory.latency_s + chunk_bytes * device_memory.seconds_per_byte;
  if (team.rails > 1)
    for (Verb verb : {Verb::reduce_scatter, Verb::allgather})
      times.node += node_cost(collective, team, verb, count).seconds;
  times.rail = seconds_on_rail(collective, team, share_bytes);
  if (rail_of(collective, team).device == nullptr)
    times.out = times.back = bus.latency_s + share_bytes * bus.seconds_per_byte;
  return times;
}

double pipelined(const StageTimes& chunk, std::int64_t chunks) {
  return static_cast<double>(chunks - 1) * chunk.longest() + chunk.sum();
}

std::int64_t best_share(const Collective& collective, const Team& team, std::int64_t elements,
                        const StageCosts* measured) {
  const auto element = static_cast<std::int64_t>(size_of(collective.dtype));
  std::int64_t best = most_share_bytes / element;
  double shortest = 0;
  for (std::int64_t share = best; share >= least_share_bytes / element; share /= 2) {
    const std::int64_t chunks = std::max<std::int64_t>(1, (elements + share * team.rails - 1) / (share * team.rails));
    const double bytes = static_cast<double>(elements) * static_cast<double>(element) / static_cast<double>(chunks);
    const StageTimes times =
        measured != nullptr ? measured->times(bytes, team.rails) : stage_times(collective, team, bytes);
    const double seconds = pipelined(times, chunks);
    if (shortest > 0 && seconds >= shortest) continue;
    shortest = seconds;
    best = share;
  }
  return best;
}

Cost cost_on_device(const Collective& collective, const Team& team) {
  if (!is_possible_on_device(collective, team)) return Cost::impossible();
  const std::int64_t share = best_share(collective, team, collective.count);
  const std::int64_t chunks =
      std::max<std::int64_t>(1, (collective.count + share * team.rails - 1) / (share * team.rails));
  const StageTimes times = stage_times(collective, team, bytes_of(collective) / static_cast<double>(chunks));
  const Team& rail = rail_of(collective, team);
  const Collective stage = on_rail(collective, team, share);
  bool is_fixed = team.rails == 1 || node_cost(collective, team, Verb::reduce_scatter, collective.count).fixed_order;
  if (rail.device != nullptr) is_fixed = is_fixed && rail.link->native()->cost(stage).fixed_order;
  else is_fixed = is_fixed && team.selector->find(stage, rail)->cost(stage, rail).fixed_order;
  return {pipelined(times, chunks), is_fixed};
}

}  // namespace hvd::collectives::hierarchical
