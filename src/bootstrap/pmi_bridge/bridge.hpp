#pragma once
// A PMI-1 server inside the process. It is for an MPI library that speaks only PMI-1 (MPICH as most distributions build
// it) under a launcher that speaks something else (PMIx, our own stores). It answers the library with the help of a
// bootstrap.
//
// 1. The library gets one end of a socket pair (PMI_FD). A thread of ours reads the requests at the other end.
// 2. A `put` is kept in this process. At `barrier_in` everything that was put since the last barrier travels as one
//    value, under one key for each rank and barrier. The barrier is the bootstrap's fence.
// 3. A `get` has a key but no rank. The bridge looks for the value first among what was put here, then among the values
//    of the rank that the key ends with (MPICH's keys end with a rank), then among those of all other ranks. The values
//    of a rank are fetched when they are first needed.
// 4. The library reads from PMI_process_mapping which ranks share a node. The bridge makes this value.
// The thread uses the bootstrap while the library waits for an answer: in MPI_Init and MPI_Finalize.
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
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::bootstrap {

// Makes a text like "(vector,(0,2,4))". It lists blocks of (first node, number of nodes, processes on each node) in the
// order of the ranks; the list repeats until it covers all ranks. Nodes are numbered in the order of the ranks. Returns
// nullopt if the text is too long for the client, which then finds out about the nodes itself.
std::optional<std::string> process_mapping(const std::vector<int>& node_of, std::size_t longest);

class PmiBridge {
 public:
  // `space` names the job's values. It is equal on all ranks and was never used before, because MPICH 5 names the
  // memory that the ranks of a node share after it. One rank gets it from new_space(). `nodes` has the id of every
  // rank's node. The bootstrap must outlive the bridge.
  static Result<std::unique_ptr<PmiBridge>> open(Bootstrap& bootstrap, const Identity& identity, std::string space,
                                                 const std::vector<std::string>& nodes,
                                                 std::chrono::milliseconds patience);
  static std::string new_space();
  // Opens a bridge for ranks that do not know each other's space and nodes yet. Collective and blocking.
  static Result<std::unique_ptr<PmiBridge>> open(Bootstrap& bootstrap, const Identity& identity,
                                                 std::chrono::milliseconds patience);
  ~PmiBridge();
  PmiBridge(const PmiBridge&) = delete;
  PmiBridge& operator=(const PmiBridge&) = delete;

  // The library's end of the socket pair. The library closes it. Programs that this process starts do not inherit it.
  int descriptor() const { return library_end_; }
  const Identity& identity() const { return identity_; }
  // Returns the answer to a request; empty if the request has no answer.
  std::string answer(std::string_view request);

 private:
  PmiBridge(Bootstrap& bootstrap, Identity identity, std::chrono::milliseconds patience)
      : bootstrap_(bootstrap), identity_(std::move(identity)), patience_(patience) {}
  Status start();
  void serve();
  std::string put(std::string_view request);
  std::string barrier();
  std::string get(std::string_view key);
  // Fetches what the rank put until the last barrier.
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
  std::vector<std::uint32_t> fetched_;  // for each rank: the number of barriers whose values were fetched
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace hvd::bootstrap
