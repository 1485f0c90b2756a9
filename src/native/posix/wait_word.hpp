#pragma once
// The place where one engine sleeps and everybody else wakes it. Lives in memory that the ranks of a node share, so it
// is a raw shared futex (std::atomic::wait neither wakes another process nor has a timeout).
//
// How a wake-up is never lost:
//  1. A waker makes its news visible (a store), then calls post().
//  2. A sleeper calls announce(), looks for news once more, and only then calls sleep(); if it found news: retract().
//  3. post() looks whether a sleeper has announced itself, and only then makes a system call.
// For 2 and 3 to exclude each other a full barrier is needed on both sides. post() issues it; post_relaxed() leaves it
// to the caller, or to the sleeper where that has the asymmetric form (FlagPost in transport/shm).
#include <atomic>
#include <chrono>
#include <cstdint>

namespace hvd::posix {

class alignas(64) WaitWord {
 public:
  // For wakers, any thread, any process that maps the word.
  void post() noexcept;
  // Without a fence on this side: every announce() issues the barrier. This process must be registered for it, or have
  // issued a fence.
  void post_relaxed() noexcept {
    if (sleepers_.load(std::memory_order_relaxed) != 0) wake();
  }

  // For the owner. announce() returns the value to hand to sleep().
  std::uint32_t announce() noexcept;
  void retract() noexcept;
  // Sleeps until posted or until the span has passed; also ends what announce() began. It may return without a cause.
  void sleep(std::uint32_t announced, std::chrono::nanoseconds span) noexcept;
  static constexpr std::chrono::nanoseconds forever{-1};

 private:
  void wake() noexcept;
  std::atomic<std::uint32_t> sequence_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};
static_assert(sizeof(WaitWord) == 64);

// True if announce() of other processes reaches this one by membarrier(2), so that it may wake them without a fence.
// Call once per process before the first announce().
bool register_asymmetric_barrier() noexcept;
// The sleeper's half of the asymmetric form: a barrier on all registered processes. Falls back to a plain fence.
void asymmetric_barrier() noexcept;

}  // namespace hvd::posix
