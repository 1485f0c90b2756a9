#pragma once
// A PMI-1 server inside the process, for an MPI library that speaks nothing else (MPICH as most distributions build it)
// under a launcher that speaks something else (PMIx, our own stores). It answers the library with the help of a
// bootstrap.
//
// 1. The library gets one end of a socket pair (PMI_FD); a thread of ours reads its requests at the other.
// 2. `put` is kept here. At `barrier_in` all that was put since the last barrier travels as one value, under one key
//    for each rank and barrier; the barrier is the bootstrap's fence.
// 3. `get` has a key but no rank. The value is looked up first among what was put here, then among the values of the
//    rank that the key ends with (MPICH's keys do), then among those of all others. A rank's values are fetched when
//    they are first needed.
// 4. The library reads from PMI_process_mapping which ranks share a node; the bridge makes this value.
// The thread uses the bootstrap while the library waits for it: in MPI_Init and MPI_Finalize.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.hpp"
#include "bootstrap/bootstrap.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::bootstrap {

// "(vector,(0,2,4))": blocks of (first node, number of nodes, processes on each) in the order of the ranks, repeated as
// often as needed; nodes are numbered in the order of the ranks. Nothing if that is too long for the client, which then
// finds out about the nodes by itself.
std::optional<std::string> process_mapping(const std::vector<int>& node_of, std::size_t longest);

class PmiBridge {
 public:
  // `space` names the job's values: equal on all ranks and never used before, since MPICH 5 names the memory that the
  // ranks of a node share after it; one rank gets it from new_space(). `nodes` has the id of every rank's node. The
  // bootstrap outlives the bridge.
  static Result<std::unique_ptr<PmiBridge>> open(Bootstrap& bootstrap, const Identity& identity, std::string space,
                                                 const std::vector<std::string>& nodes,
                                                 std::chrono::milliseconds patience);
  static std::string new_space();
  // The same, collective and blocking, for ranks that do not know each other yet.
  static Result<std::unique_ptr<PmiBridge>> open(Bootstrap& bootstrap, const Identity& identity,
                                                 std::chrono::milliseconds patience);
  ~PmiBridge();
  PmiBridge(const PmiBridge&) = delete;
  PmiBridge& operator=(const PmiBridge&) = delete;

  // The library's end, which the library closes. Programs that this process starts do not inherit it.
  int descriptor() const { return library_end_; }
  const Identity& identity() const { return identity_; }
  // The answer to a request; empty if it has none.
  std::string answer(std::string_view request);

 private:
  PmiBridge(Bootstrap& bootstrap, Identity identity, std::chrono::milliseconds patience)
      : bootstrap_(bootstrap), identity_(std::move(identity)), patience_(patience) {}
  Status start();
  void serve();
  std::string put(std::string_view request);
  std::string barrier();
  std::string get(std::string_view key);
  // What the rank put until the last barrier.
  Status fetch(int rank);
  const std::string* find(std::string_view key) const;

  Bootstrap& bootstrap_;
  const Identity identity_;
  const std::chrono::milliseconds patience_;
  std::string space_, mapping_;
  posix::FileDescriptor our_end_;
  int library_end_ = -1;
  std::thread thread_;

  Buffer unsent_;
  std::uint32_t barriers_ = 0;
  std::vector<std::uint32_t> fetched_;  // by rank: how many of its barriers are here
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace hvd::bootstrap
