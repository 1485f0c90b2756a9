// The C functions by which threads without a pointer to the runtime use it.
#include "api/current.hpp"

#include <condition_variable>
#include <mutex>

#include "api/answer.hpp"
#include "api/runtime_of_c.hpp"

namespace {

// A lock, so that a runtime that retires gets no new users. Users are counted for each runtime: when the last one of it
// leaves, another runtime may be the current one.
std::mutex mutex;
auto& has_left = *new std::condition_variable;  // never destroyed: threads of frameworks may outlive static objects
hvd_runtime* current = nullptr;
std::uint64_t generations = 0;

}  // namespace

namespace hvd::api {

void offer_as_current(hvd_runtime* runtime) {
  const std::lock_guard lock(mutex);
  if (current != nullptr) return;
  runtime->generation = ++generations;
  current = runtime;
}

void retire_current(hvd_runtime* runtime) {
  std::unique_lock lock(mutex);
  if (current != runtime) return;
  current = nullptr;
  if (runtime->users == 0) return;
  lock.unlock();
  runtime->runtime->stop();
  lock.lock();
  has_left.wait(lock, [&] { return runtime->users == 0; });
}

}  // namespace hvd::api

extern "C" {

hvd_status hvd_enter(hvd_runtime** runtime, uint64_t* generation) {
  if (runtime == nullptr)
    return hvd::api::fail(hvd::ErrorCode::invalid_argument, "hvd_enter needs a place for the runtime; got null");
  *runtime = nullptr;
  if (hvd::api::is_forked_child.load(std::memory_order_relaxed)) return hvd::api::in_forked_child();
  {
    const std::lock_guard lock(mutex);
    if (current != nullptr) {
      ++current->users;
      *runtime = current;
    }
  }
  if (*runtime == nullptr) return hvd::api::why_unusable(nullptr);
  if (generation != nullptr) *generation = (*runtime)->generation;
  return HVD_OK;
}

void hvd_leave(hvd_runtime* runtime) {
  if (!hvd::api::usable(runtime)) return;
  const std::lock_guard lock(mutex);
  if (--runtime->users == 0 && runtime != current) has_left.notify_all();
}

}  // extern "C"
