#pragma once
// How much more memory this process may use before the kernel starts to kill: what the machine has left, within what
// the control groups (batch systems, containers) allow.
#include <cstdint>
#include <string>

namespace hvd::posix {

struct AvailableMemory {
  std::int64_t bytes = 0;
  std::string limited_by;  // "the machine" or "the memory limit of control group /job_17 (8589934592 bytes)"
};

// An estimate: others allocate at the same time. A very large number if the system does not tell. Reads a few small
// files; not for hot paths.
AvailableMemory available_memory();

}  // namespace hvd::posix
