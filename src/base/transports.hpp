#pragma once
// The transports in the order of preference, with what the rest of the project knows of each: reports, checks and
// `horovodrun --explain` ask these rows, never a name. The runtime takes the first transport that reaches the ranks of
// a group (Transport::reaches).
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace hvd {

// The library that moves the bytes of a transport.
enum class Library : std::uint8_t { none, mpi, nccl };

struct TransportRow {
  std::string_view name;
  std::string_view for_people;  // in reports
  // True if the transport connects ranks that are separate processes in one node, or on several nodes.
  bool within_node;
  bool between_nodes;
  Library library;
  std::string_view medium;  // what carries the data, for people

  // Only some libraries drive the devices of a fabric. What we send between nodes ourselves goes over sockets.
  constexpr bool can_use_fabric() const {
    switch (library) {
      case Library::none: return false;
      case Library::mpi:
      case Library::nccl: return true;
    }
    return false;
  }
  constexpr bool uses_sockets() const { return between_nodes && !can_use_fabric(); }
};
inline constexpr TransportRow transports_by_preference[] = {
    {"shm", "shared memory", true, false, Library::none, "memory that its ranks share"},
    {"inproc", "inproc", false, false, Library::none, "memory of one process"},  // the ranks of inproc are threads
    {"mpi", "MPI", true, true, Library::mpi, "messages of an MPI"},
    {"tcp", "TCP", true, true, Library::none, "TCP connections"},
    {"nccl", "NCCL", false, false, Library::nccl, "NCCL"},  // between the memories of devices only
};

// Returns the row of a name. A transport without a row comes from a test; it moves its bytes itself.
constexpr TransportRow transport_row(std::string_view name) {
  const auto* found = std::ranges::find(transports_by_preference, name, &TransportRow::name);
  if (found != std::end(transports_by_preference)) return *found;
  return {name, name, false, false, Library::none, name};
}

}  // namespace hvd
