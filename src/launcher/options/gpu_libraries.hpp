#pragma once
// The driver of GPUs and the NCCL that the loader finds on this host, asked for their versions only.
#include <string>
#include <vector>

#include "base/settings/environment.hpp"

namespace hvd::launcher {

struct FoundLibrary {
  std::string version;  // "12.8"; empty: the library was not found
  std::string file;     // as it was opened
};
// HOROVOD_CUDA_DRIVER, else libcuda.so.1. The version is that of the newest CUDA that the driver knows.
FoundLibrary find_gpu_driver(const Environment& environment);
// HOROVOD_NCCL_LIBRARY, else libnccl.so.2, else the first of `others` that is there.
FoundLibrary find_nccl(const Environment& environment, const std::vector<std::string>& others);

}  // namespace hvd::launcher
