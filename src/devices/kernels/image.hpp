#pragma once
// The compiled kernels, as they lie in this build. Both parts have the kernels of kernel_names.hpp.
#include <cstddef>
#include <span>

namespace hvd::devices::cuda {

struct Image {
  std::span<const std::byte> machine_code;  // for each of several chips; a driver older than the compiler may refuse it
  const char* ptx = nullptr;                // text for every chip from V100 on, which the driver compiles

  explicit operator bool() const noexcept { return ptx != nullptr; }
};

// Returns an empty image if the build had no compilers for GPUs.
Image image() noexcept;

}  // namespace hvd::devices::cuda
