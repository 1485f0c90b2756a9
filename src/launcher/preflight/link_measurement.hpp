#pragma once
// Latency, rates and clocks between the nodes of a job: the first probe of each node measures with the others in turn.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "native/posix/endpoints.hpp"

namespace hvd::launcher::preflight {

// One node, as its first probe presents it.
struct LinkEnd {
  std::string host;
  std::string endpoints;  // "10.77.0.1:4711 10.78.0.1:4712", where it listens
};

struct LinkResult {
  std::string peer;  // the host at the other end
  double latency_us = 0;
  double sends_mbit = 0, receives_mbit = 0;
  double clock_ahead_s = 0;  // of the peer's clock before ours
  std::string fault;         // why there are no numbers; empty: there are
};
std::string text_of(const std::vector<LinkResult>& results);
std::vector<LinkResult> link_results_in(std::string_view text);

// Who measures with whom in each round; -1: nobody. Every node meets another one in each round, and all of them if
// there are few. A pure function.
std::vector<std::vector<int>> rounds_of(int nodes, int most_rounds);

// Takes as long as all rounds, or until the deadline. Blocking; one thread.
std::vector<LinkResult> measure_links(const posix::PeerSockets& here, int me, const std::vector<LinkEnd>& ends,
                                      const std::string& secret, Deadline deadline);

}  // namespace hvd::launcher::preflight
