#pragma once
// A copy of tensors in memory. The training may change the tensors while the copy is written to a file.
#include <cstddef>
#include <span>

namespace hvd::checkpoint {

// Every copy in a snapshot begins at a multiple of this many bytes from the snapshot's start.
constexpr std::size_t snapshot_alignment = 64;

struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};

// The training stands still meanwhile. Therefore several threads copy, and they leave the caches to the training.
void copy_all(std::span<const Copy> copies);

}  // namespace hvd::checkpoint
