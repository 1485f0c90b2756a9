#pragma once
// On which NUMA node the kernel takes memory for a thread.

namespace hvd::posix {

// While it lives, memory that the kernel takes for the calling thread is of this NUMA node, as long as the node has
// any. With -1 nothing changes, nor if the kernel refuses (no such node, a container that forbids it), nor if the
// program or numactl has given the thread a policy. Lives and ends on one thread.
class NearMemory {
 public:
  explicit NearMemory(int node) noexcept;
  ~NearMemory();
  NearMemory(const NearMemory&) = delete;
  NearMemory& operator=(const NearMemory&) = delete;

 private:
  bool is_set_ = false;
};

// The node that the calling thread prefers; -1: the one on which it runs, or several.
int preferred_memory_node() noexcept;

}  // namespace hvd::posix
