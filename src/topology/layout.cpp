#include "topology/layout.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/panic.hpp"

namespace hvd::topology {

namespace {

// Returns the k-th rank of every node that has at least k + 1 ranks.
std::vector<Rank> kth_of_every(const std::vector<std::vector<Rank>>& nodes, std::size_t k) {
  std::vector<Rank> ranks;
  for (const std::vector<Rank>& node : nodes)
    if (k < node.size()) ranks.push_back(node[k]);
  return ranks;
}

Group group_of(std::vector<Rank> ranks, Rank me) {
  Group group{std::move(ranks), Seat{-1}};
  group.me = group.seat_of(me);
  return group;
}

// Returns the ranks of every node in ascending order. The nodes are ordered by their lowest rank.
std::vector<std::vector<Rank>> ranks_by_node(const World& world, std::span<const Rank> ranks) {
  std::vector<Rank> ascending(ranks.begin(), ranks.end());
  std::sort(ascending.begin(), ascending.end());
  std::vector<std::vector<Rank>> nodes;
  std::unordered_map<std::string_view, std::size_t> number_of;
  for (Rank rank : ascending) {
    auto [found, is_new] = number_of.try_emplace(world.member(rank).node, nodes.size());
    if (is_new) nodes.emplace_back();
    nodes[found->second].push_back(rank);
  }
  return nodes;
}

std::vector<std::int32_t> numbers_by_seat(const std::vector<std::vector<Rank>>& nodes, std::span<const Rank> ranks,
                                          int world_size) {
  std::vector<std::int32_t> by_rank(static_cast<std::size_t>(world_size), -1), by_seat;
  for (std::size_t number = 0; number < nodes.size(); ++number)
    for (Rank rank : nodes[number]) by_rank[static_cast<std::size_t>(rank.value)] = static_cast<std::int32_t>(number);
  for (Rank rank : ranks) by_seat.push_back(by_rank[static_cast<std::size_t>(rank.value)]);
  return by_seat;
}

}  // namespace

Layout layout_of(const World& world) {
  std::vector<Rank> ranks;
  ranks.reserve(world.members.size());
  for (int rank = 0; rank < world.size(); ++rank) ranks.emplace_back(rank);
  return layout_of(world, ranks);
}

Layout layout_of(const World& world, std::span<const Rank> ranks) {
  std::vector<std::vector<Rank>> nodes = ranks_by_node(world, ranks);
  Layout layout;
  layout.world = group_of({ranks.begin(), ranks.end()}, world.rank);
  if (!layout.world.has_me()) panic("a layout was asked for by a rank that is not in it");
  layout.nodes = static_cast<int>(nodes.size());
  layout.rails = layout.world.size();
  for (std::size_t number = 0; number < nodes.size(); ++number) {
    const std::vector<Rank>& node = nodes[number];
    layout.rails = std::min(layout.rails, static_cast<int>(node.size()));
    layout.largest_node = std::max(layout.largest_node, static_cast<int>(node.size()));
    if (world.member(node.front()).node == world.me().node) {
      layout.my_node = static_cast<int>(number);
      layout.node = group_of(node, world.rank);
    }
  }
  layout.node_of = numbers_by_seat(nodes, ranks, world.size());
  layout.leaders = group_of(kth_of_every(nodes, 0), world.rank);
  auto local_rank = static_cast<std::size_t>(layout.node.me.value);
  layout.cross = group_of(kth_of_every(nodes, local_rank), world.rank);
  if (layout.node.me.value < layout.rails) layout.rail = layout.cross;
  return layout;
}

}  // namespace hvd::topology
