#pragma once
// The struct behind hvd_runtime, and the check that a caller may use it. All C functions that take an hvd_runtime use
// this file, and so do tests that make runtimes themselves.
#include <atomic>
#include <cstdint>
#include <memory>

#include "api/horovod.h"
#include "runtime/runtime.hpp"

struct hvd_runtime {
  std::unique_ptr<hvd::runtime::Runtime> runtime;
  bool is_elastic = false;  // the ranks of its job come and go
  // Of api/current, under its lock.
  std::uint64_t generation = 0;  // 0: has never been the current runtime
  int users = 0;                 // calls of hvd_enter() without their hvd_leave()
};

namespace hvd::api {

// Set in a child that was forked after hvd_init(). The child shares its parent's links and must not use them.
inline std::atomic<bool> is_forked_child{false};
hvd_status in_forked_child();

// usable() is true if the runtime exists and this process may use it; a forked child may not. why_unusable() returns
// the status and the text for a runtime that cannot be used.
inline bool usable(const hvd_runtime* runtime) {
  return runtime != nullptr && !is_forked_child.load(std::memory_order_relaxed);
}
hvd_status why_unusable(const hvd_runtime* runtime);

}  // namespace hvd::api
