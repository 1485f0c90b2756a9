#include "mpi/job.hpp"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

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
  mpi_version_.resize(
      std::min(mpi_version_.size(), mpi_version_.find_first_of("\n,")));  // the rest is how it was built
  std::replace(mpi_version_.begin(), mpi_version_.end(), '\t', ' ');

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

Job::~Job() {
  MPI_Finalize();
}

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

Ranks Job::ranks() {
  Ranks ranks{rank_, size_, is_crowded(), nullptr, [this](const std::string& why) { fail(why); }};
  ranks.allgather = [this](const Buffer& mine) {
    std::vector<int> lengths(static_cast<std::size_t>(size_)), offsets;
    int length = static_cast<int>(mine.size()), total = 0;
    MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD);
    for (int each : lengths) offsets.push_back(std::exchange(total, total + each));
    Buffer all(static_cast<std::size_t>(total));
    MPI_Allgatherv(mine.data(), length, MPI_BYTE, all.data(), lengths.data(), offsets.data(), MPI_BYTE, MPI_COMM_WORLD);
    std::vector<Buffer> by_rank;
    for (std::size_t k = 0; k < lengths.size(); ++k)
      by_rank.emplace_back(all.begin() + offsets[k], all.begin() + offsets[k] + lengths[k]);
    return by_rank;
  };
  return ranks;
}

void Job::fail(const std::string& why) const {
  std::fprintf(stderr, "benchmark, rank %d: %s\n", rank_, why.c_str());
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

}  // namespace hvd::benchmark
