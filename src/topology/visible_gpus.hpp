#pragma once
// The GPUs of every kind that this process sees.
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "base/visible_gpu.hpp"

namespace hvd::topology {

struct VisibleGpus {
  std::vector<VisibleGpu> gpus;   // in the order in which a program counts them
  std::string doubt;              // why the list may differ from the driver's; empty: no reason is known
  bool machine_has_gpus = false;  // even if this process sees none of them
};

// HOROVOD_GPU_ROOT is the folder above /proc and /dev, for tests.
VisibleGpus visible_gpus(const Environment& environment);

}  // namespace hvd::topology
