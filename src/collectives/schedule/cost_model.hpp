#pragma once
// Assumed costs of messages. Nobody has measured the team, so they serve to compare algorithms, not to predict times.
#include <bit>
#include <cstddef>

#include "base/collective.hpp"
#include "collectives/algorithm.hpp"

namespace hvd::collectives {

struct MessageCost {
  double latency_s;
  double seconds_per_byte;
};

inline int ranks_per_node(const Team& team) {
  return (team.size() + team.nodes - 1) / team.nodes;
}

// The ranks of a node that send at the same time share its adapter.
inline MessageCost network_cost(int ranks_on_node) {
  return {3.0e-6, static_cast<double>(ranks_on_node) / 10e9};
}

// A team on several nodes has the network's costs.
inline MessageCost message_cost(const Team& team) {
  if (team.node == nullptr) return {1.0e-6, 1.0 / 8e9};
  return network_cost(ranks_per_node(team));
}

// A copy between a device and the host, in one direction, and a move in the device's own memory.
inline constexpr MessageCost bus{10e-6, 1.0 / 12e9}, device_memory{3e-6, 1.0 / 300e9};

inline double bytes_of(const Collective& collective) {
  return static_cast<double>(collective.count) * static_cast<double>(size_of(collective.dtype));
}

// The number of rounds needed to reach `size` seats if each round doubles the number of seats.
inline double doublings(int size) {
  return static_cast<double>(std::bit_width(static_cast<unsigned>(size) - 1u));
}

// True if an algorithm that only sends messages can run on this team.
inline bool is_connected(const Collective& collective, const Team& team) {
  return collective.device == DeviceKind::host && (team.has_link() || team.size() == 1);
}

}  // namespace hvd::collectives
