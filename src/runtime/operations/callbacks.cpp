#include "runtime/operations/callbacks.hpp"

#include <exception>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "native/posix/processes/thread.hpp"

namespace hvd::runtime {

namespace {

thread_local UseInCallback current_use;
thread_local bool is_callback_thread = false;

}  // namespace

const UseInCallback& use_in_callback() noexcept {
  return current_use;
}

bool calls_callbacks() noexcept {
  return is_callback_thread;
}

void begin_to_call_callbacks() noexcept {
  is_callback_thread = true;
}

bool ends_with_callback(const HandleCell& cell) noexcept {
  return current_use.handle == &cell && Handles::is_last(cell);
}

void call(const Callback& callback, const UseInCallback& use, const Error* error) {
  current_use = use;
  try {
    callback.tell(callback, {error, Handles::number_of(*use.handle), use.index});
  } catch (const std::exception& thrown) {
    log::error("a callback on the completion of an operation threw an exception, which nobody can catch: " +
               std::string(thrown.what()));
  } catch (...) {
    log::error("a callback on the completion of an operation threw an exception, which nobody can catch");
  }
  current_use = {};
}

Status CallbackThread::start() {
  const auto is_ending = [this] {
    std::lock_guard queue(mutex_);
    return is_ending_;
  };
  // A callback may come here while finish() holds the lock and waits for that callback.
  std::unique_lock lock(thread_mutex_, std::try_to_lock);
  while (!lock) {
    if (is_ending()) return {};
    std::this_thread::yield();
    (void)lock.try_lock();
  }
  if (thread_.joinable() || is_ending()) return {};  // if the engine has ended, the submission is refused
  auto thread = posix::start_thread("hvd-done", [this] { run(); });
  if (!thread) return thread.error();
  thread_ = std::move(*thread);
  return {};
}

void CallbackThread::add(const Callback& callback, const UseInCallback& use, const Error* error) {
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back({callback, use, error == nullptr ? nullptr : std::make_unique<Error>(*error)});
  }
  news_.post();
}

void CallbackThread::finish() {
  {
    std::lock_guard queue(mutex_);
    is_ending_ = true;
  }
  std::lock_guard lock(thread_mutex_);
  news_.post();
  if (thread_.joinable()) thread_.join();
}

// Takes all that waits. Returns false if nothing will come any more.
bool CallbackThread::take() {
  taken_.clear();
  for (;;) {
    const std::uint32_t announced = news_.announce();
    {
      std::lock_guard lock(mutex_);
      taken_.swap(waiting_);
      if (!taken_.empty() || is_ending_) {
        news_.retract();
        return !taken_.empty();
      }
    }
    news_.sleep(announced, posix::WaitWord::forever);
  }
}

void CallbackThread::run() {
  begin_to_call_callbacks();
  while (take()) {
    for (const Call& it : taken_) {
      call(it.callback, it.use, it.error.get());
      if (handles_.count_down(*it.use.handle)) wake_();
      handles_.announce();
    }
  }
}

}  // namespace hvd::runtime
