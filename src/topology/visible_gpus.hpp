#pragma once
// The GPUs that this process sees. They are of one make, because a program counts those of each make from 0: of the
// first make of which it sees any.
#include <string>
#include <vector>

#include "base/settings/environment.hpp"
#include "base/tensor_view.hpp"
#include "base/visible_gpu.hpp"

namespace hvd::topology {

struct VisibleGpus {
  std::vector<VisibleGpu> gpus;   // in the order in which a program counts them
  std::string doubt;              // why the list may differ from the driver's; empty: no reason is known
  bool machine_has_gpus = false;  // even if this process sees none of them
};

// HOROVOD_GPU_ROOT is the folder above /proc and /dev, for tests.
VisibleGpus visible_gpus(const Environment& environment);
// False if the GPUs of that make are never among them, because there is no code yet that finds them.
bool finds_gpus_of(DeviceKind kind);

}  // namespace hvd::topology
