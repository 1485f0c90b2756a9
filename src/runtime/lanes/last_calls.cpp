#include "runtime/lanes/last_calls.hpp"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "native/posix/processes/thread.hpp"

namespace hvd::runtime {

namespace {

// Shared by both threads, because each of them may be the last.
struct Calls {
  std::vector<std::function<void()>> calls;
  std::mutex mutex;
  std::condition_variable over;
  bool is_over = false, is_given_up = false;

  void make() {
    for (const auto& call : calls) {
      {
        std::lock_guard lock(mutex);
        if (is_given_up) return;
      }
      call();
    }
    std::lock_guard lock(mutex);
    is_over = true;
    over.notify_all();
  }
};

}  // namespace

bool make_last_calls(std::vector<std::function<void()>> calls, Deadline deadline) {
  if (calls.empty()) return true;
  auto shared = std::make_shared<Calls>();
  shared->calls = std::move(calls);
  auto thread = posix::start_thread("hvd-abort", [shared] { shared->make(); });
  if (!thread) {  // without a thread there is nobody to watch the time
    shared->make();
    return true;
  }
  {
    std::unique_lock lock(shared->mutex);
    shared->is_given_up =
        !shared->over.wait_until(lock, Clock::now() + deadline.left(), [&] { return shared->is_over; });
  }
  if (shared->is_given_up) thread->detach();
  else thread->join();
  return !shared->is_given_up;
}

}  // namespace hvd::runtime
