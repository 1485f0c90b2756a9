#pragma once
// Memory that a task keeps between batches. A new reservation may lose the content.
#include <cstddef>
#include <memory>

namespace hvd::collectives {

class Scratch {
 public:
  // Returns at least this many bytes, uninitialised. Allocates only if more bytes are asked for than ever before.
  std::byte* reserve(std::size_t bytes) {
    if (bytes > bytes_) {
      memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      bytes_ = bytes;
    }
    return memory_.get();
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace hvd::collectives
