#pragma once
// The transports in the order of preference. The runtime takes the first transport that reaches the ranks of a group
// (Transport::reaches). `horovodrun --explain` has no ranks and uses only these rows.
#include <string_view>

namespace hvd {

struct TransportRow {
  std::string_view name;
  // True if the transport connects ranks that are separate processes in one node, or on several nodes.
  bool within_node;
  bool between_nodes;
  std::string_view medium;  // what carries the data, for people
};
inline constexpr TransportRow transports_by_preference[] = {
    {"shm", true, false, "memory that its ranks share"},
    {"inproc", false, false, "memory of one process"},  // the ranks of inproc are threads
    {"mpi", true, true, "messages of an MPI"},
    {"tcp", true, true, "TCP connections"},
    {"nccl", false, false, "NCCL"},  // between the memories of devices only
};

}  // namespace hvd
