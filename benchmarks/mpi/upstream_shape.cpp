#include "mpi/upstream_shape.hpp"

#include <sched.h>

#include <algorithm>

#include "native/posix/machine/affinity.hpp"

namespace hvd::benchmark {

CycleEngine::CycleEngine(Job& job, const Tensors& tensors, std::chrono::microseconds cycle)
    : job_(job), tensors_(tensors), cycle_(cycle), allreduce_(tensors, job.size()) {
  MPI_Comm_dup(MPI_COMM_WORLD, &communicator_);
  for (std::size_t i = 0; i < tensors.all().size(); ++i) names_.push_back("allreduce.gradient." + std::to_string(i));
  bits_.resize(tensors.all().size() / 64 + 1);  // one bit more than tensors: this rank wants to pause
}

CycleEngine::~CycleEngine() {
  MPI_Comm_free(&communicator_);
}

void CycleEngine::resume() {
  wants_pause_.store(false);
  std::set<pid_t> before = threads_now();
  thread_ = std::thread([this] { run(); });
  thread_ids_.clear();
  for (pid_t thread : threads_now())
    if (!before.contains(thread)) thread_ids_.insert(thread);
}

void CycleEngine::pause() {
  wants_pause_.store(true);
  thread_.join();
}

void CycleEngine::submit() {
  unfinished_.store(names_.size());
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const auto& tensor = tensors_.all()[i];
    std::lock_guard lock(mutex_);
    table_.emplace(names_[i], Entry{i, tensor.data, tensor.count});
    queue_.push_back(names_[i]);
  }
}

void CycleEngine::wait() {
  while (unfinished_.load(std::memory_order_acquire) != 0) ::sched_yield();
}

void CycleEngine::run() {
  auto bound = posix::set_affinity(posix::CpuMask::range(0, job_.cores() - 1));
  if (!bound) job_.fail(bound.error().message);
  auto last = std::chrono::steady_clock::now();
  do {
    auto passed = std::chrono::steady_clock::now() - last;
    if (passed < cycle_) std::this_thread::sleep_for(cycle_ - passed);
    last = std::chrono::steady_clock::now();
  } while (round());
}

bool CycleEngine::round() {
  std::size_t count = names_.size();
  {
    std::lock_guard lock(mutex_);
    for (const std::string& name : queue_) {
      std::size_t index = table_.at(name).index;
      bits_[index / 64] |= std::uint64_t{1} << index % 64;
    }
    taken_.insert(taken_.end(), queue_.begin(), queue_.end());
    queue_.clear();
  }
  std::vector<std::uint64_t> common = bits_;
  if (wants_pause_.load()) common[count / 64] |= std::uint64_t{1} << count % 64;
  MPI_Allreduce(MPI_IN_PLACE, common.data(), static_cast<int>(common.size()), MPI_UINT64_T, MPI_BAND, communicator_);
  bool all_pause = (common[count / 64] >> count % 64 & 1) != 0;
  for (std::size_t i = 0; i < count; ++i)
    if ((common[i / 64] >> i % 64 & 1) == 0) return !all_pause;  // the step is not complete on all ranks
  allreduce_(communicator_);
  {
    std::lock_guard lock(mutex_);
    for (const std::string& name : taken_) table_.erase(name);
    taken_.clear();
  }
  std::fill(bits_.begin(), bits_.end(), 0);
  unfinished_.store(0, std::memory_order_release);
  return !all_pause;
}

}  // namespace hvd::benchmark
