#pragma once
// This MPI program as a whole: its rank, its core, and a barrier that belongs to neither side of a comparison.
#include <string>

#include "link/exchange_bootstrap.hpp"
#include "native/posix/memory/shared_memory.hpp"

namespace hvd::benchmark {

class Job {
 public:
  // Initialises MPI. With `bound`, each rank stays on one core, as a launcher would bind it. `own_mpi_thread`: another
  // thread than the main thread calls MPI at the same time.
  Job(bool bound, bool own_mpi_thread);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int cores() const { return cores_; }
  // True if ranks share cores: a rank that waits has to let others run.
  bool is_crowded() const { return size_ > cores_; }
  const std::string& mpi_version() const { return mpi_version_; }

  // The barrier uses shared memory. Ranks leave it as close together in time as the cores allow.
  void barrier();
  // A barrier that also returns rank 0's `moment`, the time until which all ranks shall compute.
  double barrier_until(double moment);
  // This job for code that does not know MPI. The result refers to this object.
  Ranks ranks();
  // Ends all ranks.
  [[noreturn]] void fail(const std::string& why) const;

 private:
  struct Meeting;
  void meet();
  int rank_ = 0, size_ = 1, cores_ = 1;
  std::string mpi_version_;
  posix::SharedMemory memory_;
  Meeting* meeting_ = nullptr;
  unsigned round_ = 0;
};

}  // namespace hvd::benchmark
