#pragma once
// Worlds for tests, made without a launcher, with any number of ranks on any number of nodes.
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/group.hpp"
#include "base/world.hpp"

namespace hvd::testing {

enum class Placement { block, cyclic };

// A world; `shape` has the number of ranks of each node. {2, 3} has ranks 0-1 on node 0 and 2-4 on node 1. With cyclic
// placement it has ranks 0 and 2 on node 0, and 1, 3 and 4 on node 1.
inline World made_up_world(const std::vector<int>& shape, Placement placement = Placement::block) {
  World world;
  world.job = "made-up";
  auto add = [&world](std::size_t node) {
    Member member;
    member.host = "n" + std::to_string(node);
    member.node = "node-" + std::to_string(node);
    member.pid = 1000 + static_cast<int>(world.members.size());
    world.members.push_back(std::move(member));
  };
  if (placement == Placement::block) {
    for (std::size_t node = 0; node < shape.size(); ++node)
      for (int i = 0; i < shape[node]; ++i) add(node);
  } else {
    int total = std::accumulate(shape.begin(), shape.end(), 0);
    for (int turn = 0; static_cast<int>(world.members.size()) < total; ++turn)
      for (std::size_t node = 0; node < shape.size(); ++node)
        if (turn < shape[node]) add(node);
  }
  return world;
}

inline Group everybody(const World& world) {
  Group group;
  for (int rank = 0; rank < world.size(); ++rank) group.ranks.emplace_back(rank);
  group.me = Seat{world.rank.value};
  return group;
}

}  // namespace hvd::testing
