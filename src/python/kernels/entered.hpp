#pragma once
// The current runtime, for as long as an object of this class lives. Threads of frameworks hold neither the GIL nor a
// pointer to the runtime; another thread may shut it down at any time.
#include <cstdint>
#include <string>

#include "api/horovod.h"

namespace hvd::kernels {

class Entered {
 public:
  Entered() : status_(hvd_enter(&runtime_, &generation_)) {
    if (status_ != HVD_OK) message_ = hvd_last_error();
  }
  ~Entered() {
    if (status_ == HVD_OK) hvd_leave(runtime_);
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

  explicit operator bool() const noexcept { return status_ == HVD_OK; }
  hvd_runtime* runtime() const noexcept { return runtime_; }
  std::uint64_t generation() const noexcept { return generation_; }
  hvd_status status() const noexcept { return status_; }
  const std::string& message() const noexcept { return message_; }

 private:
  hvd_runtime* runtime_ = nullptr;
  std::uint64_t generation_ = 0;
  hvd_status status_;
  std::string message_;
};

}  // namespace hvd::kernels
