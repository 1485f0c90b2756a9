#pragma once
// Watches the ends of processes by their handles (pidfd, which kernels before 5.3 do not have).
#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>

#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/sockets/watch_list.hpp"

namespace hvd::posix {

// Empty if the process does not exist any more, or if there are no handles; errno says which.
FileDescriptor handle_of_process(pid_t process) noexcept;

// Works for any process, also for one that is no child. True once the process has ended (its parent has been told).
// False if it has not ended within the span, or cannot be watched.
bool wait_for_process_end(pid_t process, std::chrono::milliseconds span) noexcept;

// The order in which children end. waitpid does not tell this order: it first returns the child that was started first.
class OrderOfEnds {
 public:
  // Call it before the child is reaped. A child that cannot be watched stays unknown.
  void add(pid_t child);
  // Returns the known child that ended first. This child is unknown from then on. The object knows of every end that
  // waitpid could report.
  std::optional<pid_t> next();
  bool knows(pid_t child) const { return handles_.contains(child); }

 private:
  WatchList ended_;
  std::map<pid_t, FileDescriptor> handles_;
};

}  // namespace hvd::posix
