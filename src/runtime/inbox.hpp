#pragma once
// The inbox: callers put submissions and other requests into it, and the engine takes them out.
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/operations/operation.hpp"

namespace hvd::runtime {

class Inbox {
 public:
  enum class Pushed : std::uint8_t {
    first,   // the caller must wake the engine
    behind,  // other submissions are waiting; the caller that pushed the first of them wakes the engine
    closed,  // refused, because the inbox is closed
  };
  // May be called on any thread. All starts of one call become visible together.
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
  // Returns, for the engine, all submissions since the last call in their order. They are valid until the next call.
  std::span<const Submission> take() {
    if (!has_some_.load(std::memory_order_acquire)) return {};
    std::lock_guard lock(mutex_);
    taken_.clear();
    taken_.swap(waiting_);
    has_some_.store(false, std::memory_order_relaxed);
    return taken_;
  }
  // From now on nothing is accepted. Earlier submissions can still be taken.
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
