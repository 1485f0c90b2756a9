#pragma once
// Whether the device still works. A failed kernel, or a GPU that is lost, fails all later calls of the driver, so the
// first error is the one that everybody reports.
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "base/result.hpp"
#include "native/cuda/context.hpp"

namespace hvd::devices::cuda {

class Health {
 public:
  bool has_failed() const noexcept { return has_failed_.load(std::memory_order_acquire); }
  Error failure() const {
    std::lock_guard lock(mutex_);
    return first_ ? *first_ : Error(ErrorCode::system, "the GPU has failed");
  }
  void fail(Error error) {
    std::lock_guard lock(mutex_);
    if (!first_) first_ = std::move(error);
    has_failed_.store(true, std::memory_order_release);
  }

  // Turns the code of a call into a Status, and remembers an error after which nothing works any more.
  Status check(const hvd::cuda::Context& context, hvd::cuda::Code code, const char* what) {
    if (code == hvd::cuda::Code::success) return {};
    if (has_failed()) return failure();
    Error error = context.error(code, what);
    if (hvd::cuda::is_final(code)) fail(error);
    return error;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Error> first_;
  std::atomic<bool> has_failed_{false};
};

}  // namespace hvd::devices::cuda
