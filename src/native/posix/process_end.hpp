#pragma once
// The ends of processes, by handles of theirs (pidfd, which kernels before 5.3 do not have).
#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>

#include "native/posix/file_descriptor.hpp"
#include "native/posix/watch_list.hpp"

namespace hvd::posix {

// Empty, and errno says why, where there is no such process any more, or no handle to be had.
FileDescriptor handle_of_process(pid_t process) noexcept;

// For a process that need not be our child. True once it has ended (its parent has been told), false if it has not within
// the span or cannot be watched.
bool wait_for_process_end(pid_t process, std::chrono::milliseconds span) noexcept;

// In which order children end, of which waitpid tells nothing: of those that have ended it gives the one first that was
// started first.
class OrderOfEnds {
 public:
  // Before somebody reaps it. A child that cannot be watched stays unknown.
  void add(pid_t child);
  // Of the known ones that have ended the first; it is unknown from then on. Whoever waitpid would give has ended here
  // already.
  std::optional<pid_t> next();
  bool knows(pid_t child) const { return handles_.contains(child); }

 private:
  WatchList ended_;
  std::map<pid_t, FileDescriptor> handles_;
};

}  // namespace hvd::posix
