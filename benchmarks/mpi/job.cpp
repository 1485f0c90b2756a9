#include "mpi/job.hpp"

#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

#include "mpi/world_ranks.hpp"
#include "native/posix/machine/affinity.hpp"

namespace hvd::benchmark {

struct Job::Meeting {
  alignas(128) std::atomic<int> arrived;
  alignas(128) std::atomic<unsigned> round;
  std::atomic<double> moment;
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
      // the text after this point only tells how the library was built
      std::min(mpi_version_.size(), mpi_version_.find_first_of("\n,")));
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

  meet();
}

// MPI's shared windows are not used: if an MPI plays several nodes on one machine, its nodes share no window.
void Job::meet() {
  int where[2] = {static_cast<int>(::getpid()), -1};
  auto value_of = [this](Result<posix::SharedMemory> memory) {
    if (!memory) fail(memory.error().message);
    return std::move(*memory);
  };
  if (rank_ == 0) {
    memory_ = value_of(posix::SharedMemory::create("benchmark/meeting", sizeof(Meeting)));
    new (memory_.data()) Meeting{};
    where[1] = memory_.descriptor();
  }
  MPI_Bcast(where, 2, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank_ != 0) {
    std::string path = "/proc/" + std::to_string(where[0]) + "/fd/" + std::to_string(where[1]);
    posix::FileDescriptor descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!descriptor) fail("cannot open " + path + ": all ranks have to run on one machine");
    memory_ = value_of(posix::SharedMemory::map(descriptor, sizeof(Meeting)));
  }
  meeting_ = static_cast<Meeting*>(memory_.data());
  MPI_Barrier(MPI_COMM_WORLD);
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

double Job::barrier_until(double moment) {
  if (rank_ == 0) meeting_->moment.store(moment);
  barrier();
  return meeting_->moment.load();
}

Ranks Job::ranks() {
  return ranks_of_world(is_crowded(), [this](const std::string& why) { fail(why); });
}

void Job::fail(const std::string& why) const {
  std::fprintf(stderr, "benchmark, rank %d: %s\n", rank_, why.c_str());
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

}  // namespace hvd::benchmark
