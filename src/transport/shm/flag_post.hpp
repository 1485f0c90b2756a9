#pragma once
// Raises a flag and wakes the engines that may sleep because of it.
#include <atomic>
#include <cstdint>
#include <vector>

#include "native/posix/memory/wait_word.hpp"
#include "transport/shm/shared_area.hpp"

namespace hvd::transport::shm {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool always_fence = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool always_fence = true;
#else
inline constexpr bool always_fence = false;
#endif
#else
inline constexpr bool always_fence = false;
#endif

// Wakes sleepers without a fence. A sleeper announces itself with a barrier on all processes (membarrier), so the waker
// needs no fence. The waker's store must only come before its look for sleepers, and a compiler barrier ensures that. A
// fence would wait until the flag's cache line has arrived from the peer's cache, which takes as long as the rest of a
// small allreduce.
class FlagPost {
 public:
  // `words` are ordered by seat. A word is null for this seat and for seats without a word.
  FlagPost(std::vector<posix::WaitWord*> words, bool asymmetric)
      : by_seat_(std::move(words)), asymmetric_(asymmetric && !always_fence) {
    for (auto* word : by_seat_) {
      if (word != nullptr) others_.push_back(word);
    }
  }

  void post(std::atomic<std::uint64_t>& flag, std::uint64_t value) noexcept {
    flag.store(value, std::memory_order_release);
    ring_all();
  }
  void post_to(int seat, std::atomic<std::uint64_t>& flag, std::uint64_t value) noexcept {
    flag.store(value, std::memory_order_release);
    if (posix::WaitWord* word = by_seat_[static_cast<std::size_t>(seat)]) ring(*word);
  }

 private:
  void ring_all() noexcept {
    for (posix::WaitWord* word : others_) ring(*word);
  }
  void ring(posix::WaitWord& word) noexcept {
    if (asymmetric_) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
      word.post_relaxed();
    } else {
      word.post();
    }
  }

  std::vector<posix::WaitWord*> by_seat_;
  std::vector<posix::WaitWord*> others_;
  bool asymmetric_;
};

}  // namespace hvd::transport::shm
