#pragma once
// Which workers become the ranks of the next world, and in which order. Pure.
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.hpp"
#include "launcher/elastic/host_pool.hpp"

namespace hvd::launcher {

using Worker = Id<struct WorkerTag, std::uint64_t>;  // one process on one slot; the number is never given again
using Epoch = std::uint32_t;                         // the number of a world; the first is 1

struct Candidate {
  Worker worker;
  HostPool::Slot slot;
  std::size_t place_of_host = 0;  // HostPool::place_of
  std::optional<Rank> before{};   // its rank in the world before; empty for a newcomer
  bool has_state = false;         // it has the state of the training
};

// A worker's place in a world, with Horovod's words: local is the ranks of its host, cross is the set of hosts that
// have this local rank.
struct WorldPlace {
  Worker worker;
  Rank rank;
  int local_rank = 0, local_size = 1;
  int cross_rank = 0, cross_size = 1;
};

// At most `most` of the candidates, by rank. Hosts with survivors come first, in the order of their lowest rank so far;
// then the others, by place. Within a host survivors come first, in their order, then newcomers by slot. A host whose
// survivors have the state comes before one whose survivors have not, and so does such a survivor within its host: rank
// 0 has the state if anybody has. Survivors are taken before newcomers.
std::vector<WorldPlace> rank_workers(std::vector<Candidate> candidates, int most);

}  // namespace hvd::launcher
