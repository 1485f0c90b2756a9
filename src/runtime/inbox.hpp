#pragma once
// Submissions and other wishes that callers leave for the engine.
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/operation.hpp"

namespace hvd::runtime {

class Inbox {
 public:
  enum class Pushed : std::uint8_t {
    first,   // the engine is to be woken
    behind,  // others are waiting already: whoever pushed the first of them wakes the engine for all
    closed,  // not accepted
  };
  // Any thread. All of them become visible together.
  Pushed push(std::span<const Start> starts, HandleCell& handle) {
    std::lock_guard lock(mutex_);
    if (is_closed()) return Pushed::closed;
    Pushed pushed = waiting_.empty() ? Pushed::first : Pushed::behind;
    std::uint32_t index = 0;
    for (const Start& it : starts)
      waiting_.push_back({it.operation, it.input, it.output, it.first_dimension, &handle, index++});
    has_some_.store(true, std::memory_order_release);
    return pushed;
  }
  // For the engine: what has come since the last call, in order; valid until the next call.
  std::span<const Submission> take() {
    if (!has_some_.load(std::memory_order_acquire)) return {};
    std::lock_guard lock(mutex_);
    taken_.clear();
    taken_.swap(waiting_);
    has_some_.store(false, std::memory_order_relaxed);
    return taken_;
  }
  // Nothing is accepted any more; what came before can still be taken.
  void close() {
    std::lock_guard lock(mutex_);
    closed_.store(true, std::memory_order_release);
  }
  bool is_closed() const { return closed_.load(std::memory_order_acquire); }

 private:
  std::mutex mutex_;
  std::atomic<bool> has_some_{false};
  std::vector<Submission> waiting_;
  std::vector<Submission> taken_;
  std::atomic<bool> closed_{false};
};

}  // namespace hvd::runtime
