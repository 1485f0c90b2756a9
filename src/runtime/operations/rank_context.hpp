#pragma once
// What the parts of one rank's runtime share: the engine, the leader, the follower and the lanes. It outlives them all.
#include <vector>

#include "base/settings/config.hpp"
#include "base/world.hpp"
#include "control/node_board.hpp"
#include "runtime/operations/counters.hpp"
#include "topology/layout.hpp"

namespace hvd::runtime {

class Observer;

struct RankContext {
  const World& world;
  const Config& config;
  const topology::Layout& layout;
  control::NodeBoard& board;
  Counters& counters;
  const std::vector<Observer*>& observers;
};

}  // namespace hvd::runtime
