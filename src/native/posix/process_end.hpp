#pragma once
// Waiting for the end of a process that is not our child.
#include <sys/types.h>

#include <chrono>

namespace hvd::posix {

// True once the process has ended (its parent has been told), false if it has not within the span or cannot be watched.
bool wait_for_process_end(pid_t process, std::chrono::milliseconds span) noexcept;

}  // namespace hvd::posix
