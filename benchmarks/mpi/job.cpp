#include "mpi/job.hpp"

#include <mpi.h>
#include <sched.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "native/posix/affinity.hpp"

namespace hvd::benchmark {

struct Job::Meeting {
  alignas(128) std::atomic<int> arrived;
  alignas(128) std::atomic<unsigned> round;
};

Job::Job(bool bound, bool own_mpi_thread) {
  int wanted = own_mpi_thread ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED, provided = 0;
  MPI_Init_thread(nullptr, nullptr, wanted, &provided);
  if (provided < wanted) fail("this MPI does not allow a second thread to call it");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length);
  mpi_version_.assign(version, static_cast<std::size_t>(length));

  auto mask = posix::affinity();
  if (!mask) fail(mask.error().message);
  cores_ = mask->count();
  if (bound) {
    int core = mask->first();
    for (int k = 0; k < rank_ % cores_; ++k) core = mask->next(core);
    auto status = posix::set_affinity(posix::CpuMask::range(core, core));
    if (!status) fail(status.error().message);
  }

  MPI_Win window = MPI_WIN_NULL;  // lives as long as the process
  void* memory = nullptr;
  MPI_Win_allocate_shared(rank_ == 0 ? static_cast<MPI_Aint>(sizeof(Meeting)) : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                          &memory, &window);
  MPI_Aint bytes = 0;
  int unit = 0;
  MPI_Win_shared_query(window, 0, &bytes, &unit, &memory);
  if (rank_ == 0) meeting_ = new (memory) Meeting{};
  MPI_Barrier(MPI_COMM_WORLD);
  meeting_ = static_cast<Meeting*>(memory);
}

Job::~Job() { MPI_Finalize(); }

void Job::barrier() {
  unsigned round = round_++;
  if (meeting_->arrived.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
    meeting_->arrived.store(0, std::memory_order_relaxed);
    meeting_->round.store(round + 1, std::memory_order_release);
    return;
  }
  while (meeting_->round.load(std::memory_order_acquire) == round)
    if (is_crowded()) ::sched_yield();
}

void Job::fail(const std::string& why) const {
  std::fprintf(stderr, "benchmark, rank %d: %s\n", rank_, why.c_str());
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

}  // namespace hvd::benchmark
