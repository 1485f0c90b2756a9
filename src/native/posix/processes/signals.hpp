#pragma once
// Signals as readable events, and the original signal settings for a child.
#include <signal.h>

#include <initializer_list>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::posix {

struct SignalEvent {
  int signal = 0;
  pid_t sender = 0;  // the child for which the kernel queued SIGCHLD; it is the first child whose state has changed
};

// The changes of children that SIGCHLD reports.
enum class ChildNews { ends, ends_and_stops };

// Blocks some signals for the calling thread (and for the threads that it starts later) and makes them readable.
// Construct it before any other thread exists. The destructor restores the mask.
class SignalReader {
 public:
  static Result<SignalReader> open(std::initializer_list<int> signals, ChildNews news = ChildNews::ends);
  SignalReader(SignalReader&&) = default;
  SignalReader& operator=(SignalReader&&) = delete;
  ~SignalReader();

  int descriptor() const noexcept { return descriptor_.get(); }
  std::optional<SignalEvent> next();  // returns the next event; never blocks

 private:
  SignalReader() = default;
  FileDescriptor descriptor_;
  sigset_t previous_mask_{};
};

// The signal settings with which this process was started. A child gets them again, even if this process blocks or
// ignores signals meanwhile.
struct SignalState {
  sigset_t mask{};
  bool pipe_ignored = false, file_size_ignored = false;
  static SignalState of_this_process();
};

// For a child between fork and exec: restores all settings of `before`, and removes our handlers.
void restore_signals(const SignalState& before);

// Ends this process as the signal does if nobody handles it. Returns if the signal does not end a process.
void end_by_signal(int signal);

// Returns a text like "SIGKILL"; "signal 77" for a signal without a name.
std::string name_of_signal(int signal);

}  // namespace hvd::posix
