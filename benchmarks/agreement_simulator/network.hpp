#pragma once
// Simulated links between hosts. They tell when a frame arrives that is sent now.
#include <algorithm>
#include <cstdint>
#include <random>
#include <unordered_map>
#include <vector>

#include "agreement_simulator/simulation.hpp"

namespace hvd::simulation {

class Network {
 public:
  Network(const Links& links, int hosts, unsigned seed)
      : links_(links),
        leaves_(static_cast<std::size_t>(hosts), 0),
        enters_(static_cast<std::size_t>(hosts), 0),
        random_(seed * 2654435761u + 1) {}

  // A host's interface sends one frame after the other and receives one after the other. Frames of one connection (from
  // one node to another) keep their order.
  Nanoseconds travel(int from, int to, int from_host, int to_host, std::int64_t bytes, Nanoseconds now) {
    Nanoseconds there = now + links_.inside_a_host;
    if (from_host != to_host) {
      auto on_wire = static_cast<Nanoseconds>(static_cast<double>((bytes + links_.overhead_bytes) * 8) /
                                              links_.gigabits_per_second);
      Nanoseconds& leaves = leaves_[static_cast<std::size_t>(from_host)];
      Nanoseconds& enters = enters_[static_cast<std::size_t>(to_host)];
      leaves = std::max(leaves, now) + on_wire;
      there = std::max(leaves + links_.latency + jitter(), enters + on_wire);
      enters = there;
    }
    Nanoseconds& last = last_of_connection_[static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint64_t>(to)];
    last = std::max(last, there);
    return last;
  }

 private:
  Nanoseconds jitter() {
    return links_.jitter <= 0 ? 0 : static_cast<Nanoseconds>(random_() % static_cast<std::uint64_t>(links_.jitter + 1));
  }

  const Links links_;
  std::vector<Nanoseconds> leaves_, enters_;  // the times when the interface of each host is free again
  std::unordered_map<std::uint64_t, Nanoseconds> last_of_connection_;
  std::mt19937_64 random_;
};

}  // namespace hvd::simulation
