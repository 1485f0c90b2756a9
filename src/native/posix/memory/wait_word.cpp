#include "native/posix/memory/wait_word.hpp"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <climits>
#include <ctime>

namespace hvd::posix {

void WaitWord::post() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  post_relaxed();
}

void WaitWord::wake() noexcept {
  sequence_.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&sequence_), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::uint32_t WaitWord::announce() noexcept {
  std::uint32_t announced = sequence_.load(std::memory_order_seq_cst);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  asymmetric_barrier();
  return announced;
}

void WaitWord::retract() noexcept {
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void WaitWord::sleep(std::uint32_t announced, std::chrono::nanoseconds span) noexcept {
  timespec timeout{};
  timespec* limit = nullptr;
  if (span != forever) {
    timeout.tv_sec = static_cast<time_t>(span.count() / 1'000'000'000);
    timeout.tv_nsec = static_cast<long>(span.count() % 1'000'000'000);
    limit = &timeout;
  }
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&sequence_), FUTEX_WAIT, announced, limit, nullptr, 0);
  retract();
}

bool register_asymmetric_barrier() noexcept {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void asymmetric_barrier() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

}  // namespace hvd::posix
