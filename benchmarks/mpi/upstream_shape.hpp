#pragma once
// Stand-ins for upstream Horovod, which cannot be run here: the least work that its CPU path over MPI has to do,
// without its bookkeeping. The two classes are our own code and faster than the original.
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "mpi/job.hpp"
#include "mpi/our_runtime.hpp"
#include "mpi/packed_allreduce.hpp"
#include "mpi/tensors.hpp"

namespace hvd::benchmark {

// PackedAllreduce behind a control plane of upstream's shape:
//  1. A submission puts a named entry into a table and a request into a queue, under a mutex.
//  2. A thread sleeps until the cycle time has passed since the last round. Then it takes the queue, and finds out by
//     one MPI_Allreduce(BAND) over bits which tensors are ready on all ranks (everything is cached already).
//  3. When all tensors are ready, they are packed, reduced, scaled and unpacked. The waiting caller polls with yields.
// It needs an MPI that allows two threads. The thread may run on all cores.
class CycleEngine {
 public:
  CycleEngine(Job& job, const Tensors& tensors, std::chrono::microseconds cycle);
  ~CycleEngine();
  CycleEngine(const CycleEngine&) = delete;
  CycleEngine& operator=(const CycleEngine&) = delete;

  // Collective. The thread runs only between resume() and pause(), because it takes time from other contenders.
  void resume();
  void pause();
  void submit();
  void wait();
  Usage usage() const { return usage_of(thread_ids_); }

 private:
  struct Entry {
    std::size_t index;
    float* data;
    std::size_t count;
  };
  void run();
  // False if all ranks want to pause.
  bool round();

  Job& job_;
  const Tensors& tensors_;
  std::chrono::microseconds cycle_;
  PackedAllreduce allreduce_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  std::vector<std::string> names_;
  std::thread thread_;
  std::set<pid_t> thread_ids_;
  std::mutex mutex_;
  std::unordered_map<std::string, Entry> table_;
  std::vector<std::string> queue_, taken_;
  std::vector<std::uint64_t> bits_;
  std::atomic<bool> wants_pause_{false};
  std::atomic<std::size_t> unfinished_{0};
};

}  // namespace hvd::benchmark
