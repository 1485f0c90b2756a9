#pragma once
// How much more memory this process may use before the kernel starts to kill processes: what the machine has left,
// within the limits of the control groups (batch systems, containers).
#include <cstdint>
#include <string>

namespace hvd::posix {

struct AvailableMemory {
  std::int64_t bytes = 0;
  std::string limited_by;  // what limits the memory: "the machine" or "the memory limit of control group /job_17
                           // (8589934592 bytes)"
};

// Returns an estimate, because others allocate at the same time. Returns a very large number if the system does not
// tell. Reads a few small files, so do not call it often.
AvailableMemory available_memory();

}  // namespace hvd::posix
