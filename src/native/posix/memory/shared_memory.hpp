#pragma once
// Memory that several processes can map. It is an anonymous file (memfd), so nothing is left behind and the size of
// /dev/shm does not matter.
#include <cstddef>
#include <string_view>

#include "base/result.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::posix {

class SharedMemory {
 public:
  // The memory is zeroed. All its pages are faulted in before the call returns. So too little memory is an error here,
  // which says how much was needed, and not a SIGBUS later.
  static Result<SharedMemory> create(std::string_view label, std::size_t bytes);
  // Maps memory that another process created. `bytes` must be the size that the other process asked for.
  static Result<SharedMemory> map(const FileDescriptor& descriptor, std::size_t bytes);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  int descriptor() const noexcept { return descriptor_.get(); }  // -1 for memory that was mapped by map()
  // Call it after the descriptor was handed to all processes that map the memory: a process may have many more memories
  // than descriptors.
  void give_up_descriptor() noexcept { descriptor_.reset(); }

 private:
  FileDescriptor descriptor_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Turns whole pages of such memory into private pages of this process, with their content, at the same address. Other
// processes no longer write to them. Threads may read the pages meanwhile. If memory is short, returns false and
// changes nothing.
bool make_private(void* pages, std::size_t bytes) noexcept;

}  // namespace hvd::posix
