#pragma once
// The transports in the order of preference. The runtime takes the first one that reaches the ranks of a group
// (Transport::reaches); `horovodrun --explain`, which has no ranks, reads the same rows.
#include <string_view>

namespace hvd {

struct TransportRow {
  std::string_view name;
  // What it reaches when ranks are processes.
  bool within_node;
  bool between_nodes;
  std::string_view medium;  // for people
};
inline constexpr TransportRow transports_by_preference[] = {
    {"shm", true, false, "memory that its ranks share"},
    {"inproc", false, false, "memory of one process"},  // ranks that are threads
    {"mpi", true, true, "messages of an MPI"},
    {"tcp", true, true, "TCP connections"},
};

}  // namespace hvd
