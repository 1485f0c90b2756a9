#pragma once
// Measures latency, rates and clocks between the nodes of a job. The first probe of each node measures with those of
// the other nodes, one after the other.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "native/posix/sockets/endpoints.hpp"

namespace hvd::launcher::preflight {

// One node, as its first probe describes it to the others.
struct LinkEnd {
  std::string host;
  std::string endpoints;  // the addresses where it listens, "10.77.0.1:4711 10.78.0.1:4712"
};

// The faults of a link whose one node could not connect and whose other one waited for it. Together they prove that the
// nodes do not reach each other. Others prove less: a node may have been late because of a third one.
inline constexpr std::string_view cannot_connect = "cannot connect", did_not_connect = "did not connect";

struct LinkResult {
  std::string peer;  // the other node's host
  double latency_us = 0;
  double sends_mbit = 0, receives_mbit = 0;
  double clock_ahead_s = 0;  // how far the other node's clock is ahead of ours
  std::string fault;         // why there are no numbers; empty if there are numbers
};
std::string text_of(const std::vector<LinkResult>& results);
std::vector<LinkResult> link_results_in(std::string_view text);

// Returns for each round which node measures with which; -1 means that a node pauses. In each round every node has
// another partner. With few nodes all pairs measure. A pure function.
std::vector<std::vector<int>> rounds_of(int nodes, int most_rounds);

// Measures in all rounds, but not longer than the deadline. Blocking; uses one thread.
std::vector<LinkResult> measure_links(const posix::PeerSockets& here, int me, const std::vector<LinkEnd>& ends,
                                      const std::string& secret, Deadline deadline);

}  // namespace hvd::launcher::preflight
