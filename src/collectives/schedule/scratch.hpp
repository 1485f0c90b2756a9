#pragma once
// Memory that a task keeps between batches; its contents do not outlive a reservation.
#include <cstddef>
#include <memory>

namespace hvd::collectives {

class Scratch {
 public:
  // At least so many bytes, uninitialised. Allocates only if it was never asked for so many before.
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
