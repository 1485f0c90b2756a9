#pragma once
// The word on which one engine sleeps, and by which all others wake it. It is in memory that the ranks of a node share,
// so it is a raw shared futex (std::atomic::wait wakes no other process and has no timeout).
//
// How it is made certain that no wake-up is lost:
//  1. A waker makes its news visible (a store), then calls post().
//  2. A sleeper calls announce(), looks for news once more, and then calls sleep(). If it found news, it calls
//     retract() and does not sleep.
//  3. post() checks whether a sleeper has announced itself, and makes a system call only in that case.
// For 2 and 3 to exclude each other, both sides need a full barrier. post() issues its barrier. post_relaxed() leaves
// the barrier to the caller, or to a sleeper that uses the asymmetric form (FlagPost in transport/shm).
#include <atomic>
#include <chrono>
#include <cstdint>

namespace hvd::posix {

class alignas(64) WaitWord {
 public:
  // For wakers: any thread of any process that maps the word.
  void post() noexcept;
  // Issues no fence: every announce() issues the barrier for both sides. This process must be registered for that
  // barrier, or must have issued a fence.
  void post_relaxed() noexcept {
    if (sleepers_.load(std::memory_order_relaxed) != 0) wake();
  }

  // For the owner. announce() returns the value that sleep() takes.
  std::uint32_t announce() noexcept;
  void retract() noexcept;
  // Sleeps until it is posted or until the span has passed. It also ends what announce() began. It may return without a
  // cause.
  void sleep(std::uint32_t announced, std::chrono::nanoseconds span) noexcept;
  static constexpr std::chrono::nanoseconds forever{-1};

 private:
  void wake() noexcept;
  std::atomic<std::uint32_t> sequence_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};
static_assert(sizeof(WaitWord) == 64);

// True if the barrier in announce() of other processes reaches this one through membarrier(2). Then this process may
// wake them without a fence. Call it once per process before the first announce().
bool register_asymmetric_barrier() noexcept;
// The sleeper's half of the asymmetric form: a barrier on all registered processes. If that is not possible, it issues
// a plain fence.
void asymmetric_barrier() noexcept;

}  // namespace hvd::posix
