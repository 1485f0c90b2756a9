#pragma once
// Calls of the program's functions at the end of its operations, on the engine's thread or on a thread for callbacks
// alone. All ranks wait while a call keeps the engine; the thread for callbacks only delays other callbacks.
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.hpp"
#include "native/posix/memory/wait_word.hpp"
#include "runtime/operations/handle.hpp"
#include "runtime/operations/operation.hpp"

namespace hvd::runtime {

// The use of an operation of which the calling thread's callback is told. Its results may be taken there, although its
// handle is not done.
struct UseInCallback {
  HandleCell* handle = nullptr;
  std::uint32_t index = 0;
};
const UseInCallback& use_in_callback() noexcept;

// True on threads that call callbacks. They must not wait for operations, ranks or files.
bool calls_callbacks() noexcept;
// Called at the beginning of such a thread.
void begin_to_call_callbacks() noexcept;

// Calls the function. The handle counts the operation afterwards.
void call(const Callback& callback, const UseInCallback& use, const Error* error);

// True during a callback after which the handle is done. A wait for it does not block there.
bool ends_with_callback(const HandleCell& cell) noexcept;

// The thread for callbacks of a runtime ("hvd-done"). The engine passes it the uses that have ended, in their order. It
// calls their functions and counts them at their handles.
class CallbackThread {
 public:
  // `wake` wakes the engine.
  CallbackThread(Handles& handles, std::function<void()> wake) : handles_(handles), wake_(std::move(wake)) {}
  ~CallbackThread() { finish(); }

  // Makes the thread if there is none. Any thread may call this, before it submits a use with such a callback.
  Status start();
  // The engine calls this.
  void add(const Callback& callback, const UseInCallback& use, const Error* error);
  // Called when the engine has ended. Returns when all functions have been called.
  void finish();

 private:
  struct Call {
    Callback callback;
    UseInCallback use;
    std::unique_ptr<Error> error;
  };
  void run();
  bool take();

  Handles& handles_;
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<Call> waiting_;
  bool is_ending_ = false;
  std::vector<Call> taken_;  // of the thread alone
  posix::WaitWord news_;
  std::mutex thread_mutex_;
  std::thread thread_;
};

}  // namespace hvd::runtime
