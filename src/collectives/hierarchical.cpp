// Collectives over several nodes, composed of collectives inside the nodes and along the rails. The code uses only
// Team. The selector chooses the links and algorithms of the stages.
//
// The batch is cut into chunks, and every chunk is divided among the rails: rail k carries the k-th share. Short chunks
// of allreduce and broadcast travel only on the first rail. The stages of a chunk are as follows; on some ranks a stage
// has no task:
//                  first (node)                     middle (rail)                last (node)
//   allreduce      reduce_scatter: the k-th rank    allreduce of share k         allgather
//                  gets its node's share k
//   broadcast      on the root's node: broadcast    broadcast of share k         on the other nodes: allgather
//   allgather      allgather of the node's own      allgather of the nodes'      allgather of the other nodes'
//                                                   shares k
//   reduce_scatter reduce_scatter: the k-th rank    reduce_scatter: every node   allgather, from which a rank
//                  gets its node's shares k         gets its share k             takes its own part
//   barrier        barrier                          first rail only: barrier     barrier
// With uneven nodes there are as many rails as the smallest node has ranks. The other ranks own shares without
// elements.
//
// Several chunks are under way at the same time: see hierarchical/pipeline.hpp. 16-bit types are rounded once per
// stage. The prescale is applied in the first stage, the postscale in the middle stage.
//
// Tensors in device memory have a pipeline of their own, which does allreduce and adasum:
// hierarchical/on_device/task.cpp.
#include <algorithm>

#include "base/panic.hpp"
#include "collectives/algorithm.hpp"
#include "collectives/hierarchical/on_device/estimate.hpp"
#include "collectives/hierarchical/on_device/task.hpp"
#include "collectives/hierarchical/tasks.hpp"
#include "collectives/schedule/cost_model.hpp"

namespace hvd::collectives {

namespace {

// The assumed latency of a stage inside a node. It is less than that of a message, because data go through the node's
// memory.
constexpr double inside_latency_s = 0.5e-6;
// The assumed cost of having stages.
constexpr double overhead_s = 0.5e-6;
constexpr std::size_t short_share_bytes = 8 << 10;

class Hierarchical final : public Algorithm {
 public:
  const char* name() const override { return "hierarchical"; }
  bool needs_links_of_host() const override { return true; }
  bool does(Verb verb) const override {
    switch (verb) {
      case Verb::allreduce:
      case Verb::broadcast:
      case Verb::allgather:
      case Verb::reduce_scatter:
      case Verb::adasum:
      case Verb::barrier: return true;
      case Verb::alltoall:
      case Verb::join:
      case Verb::add_set:
      case Verb::remove_set: break;
    }
    return false;
  }
  std::string_view addition_order(const Collective&, const Team&) const override { return "hierarchical"; }

  // Uses only the numbers of nodes and rails, which all ranks know.
  Cost cost(const Collective& collective, const Team& team) const override {
    if (collective.device != DeviceKind::host) return hierarchical::cost_on_device(collective, team);
    if (!does(collective.verb) || !can_be_staged(collective, team)) return Cost::impossible();
    const MessageCost network = message_cost(team), memory = message_cost(Team{});
    const double nodes = team.nodes, on_node = static_cast<double>(team.size()) / nodes;
    const double bytes = collective.verb == Verb::barrier ? 0 : bytes_of(collective);
    const double ways = collective.verb == Verb::allreduce ? 2 : 1;
    const double stages_inside = collective.verb == Verb::broadcast ? 1 : 2;
    // For short shares the seats of a rail exchange all data, which takes half the rounds.
    const double rail_ways = bytes / on_node > static_cast<double>(short_share_bytes) ? ways : 1;
    double latency_s = stages_inside * doublings(ranks_per_node(team)) * inside_latency_s +
                       rail_ways * doublings(team.nodes) * network.latency_s + overhead_s;
    double inside_s = ways * bytes * (on_node - 1) / on_node * memory.seconds_per_byte;
    // The rails of a node share its adapter: each rail has its part of the bytes and of the bandwidth.
    double between_s = ways * bytes * (nodes - 1) / nodes / on_node * network.seconds_per_byte;
    return {latency_s + inside_s + between_s, true};
  }

  std::unique_ptr<Task> plan(const Collective& collective, Team& team) const override {
    if (collective.device != DeviceKind::host) return hierarchical::plan_on_device(collective, team);
    switch (collective.verb) {
      case Verb::allreduce: return hierarchical::plan_allreduce(collective, team);
      case Verb::broadcast: return hierarchical::plan_broadcast(collective, team);
      case Verb::allgather: return hierarchical::plan_allgather(collective, team);
      case Verb::reduce_scatter: return hierarchical::plan_reduce_scatter(collective, team);
      case Verb::barrier: return hierarchical::plan_barrier(collective, team);
      case Verb::alltoall:
      case Verb::join:
      case Verb::adasum:
      case Verb::add_set:
      case Verb::remove_set: break;
    }
    panic("hierarchical was asked to plan a verb that it does not do");
  }

 private:
  // True if the collective can have stages here. The selector chooses their algorithms; for a connected team it finds
  // one for every verb.
  static bool can_be_staged(const Collective& collective, const Team& team) {
    if (collective.verb == Verb::adasum || team.nodes < 2 || team.node == nullptr || team.selector == nullptr)
      return false;
    bool needs_numbers = collective.verb != Verb::allreduce && collective.verb != Verb::barrier;
    if (needs_numbers && team.node_of.empty()) return false;
    return is_connected(collective, *team.node) && (team.rail == nullptr || is_connected(collective, *team.rail));
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_hierarchical() {
  return std::make_unique<Hierarchical>();
}

}  // namespace hvd::collectives
