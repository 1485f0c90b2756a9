#pragma once
// The memory control group of this process (version 1 or 2): how often its out-of-memory killer has struck, and its
// limit.
#include <cstdint>
#include <optional>
#include <string>

namespace hvd::posix {

struct MemoryGroup {
  std::string path;  // path of the group, as /proc/self/cgroup names it
  std::uint64_t oom_kills = 0;
  std::optional<std::uint64_t> limit_bytes;  // the smallest of this group and the groups above it that are visible here
};

// `root` is put before every path that is read, so that a test can use its own tree of files. Returns nullopt if there
// is no such group, or if the kernel does not count (before 4.13).
std::optional<MemoryGroup> read_memory_group(const std::string& root = "");

}  // namespace hvd::posix
