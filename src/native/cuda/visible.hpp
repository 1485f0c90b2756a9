#pragma once
// Which GPUs CUDA would show to this process, and in which order. The driver is not asked: no library is loaded, no GPU
// is started, no context is made. (The MPI of some sites must be started before CUDA.)
#include <string>
#include <vector>

#include "base/settings/environment.hpp"
#include "base/visible_gpu.hpp"

namespace hvd::cuda {

struct Visible {
  std::vector<VisibleGpu> gpus;  // in the order in which a program counts them
  std::string doubt;             // what only the driver knows, so that the list may differ from CUDA's; empty: nothing
  bool has_driver = false;       // this machine has GPUs, though this process may see none of them
  // NVIDIA's control device may be opened, but /proc tells of no GPU: only the driver knows them.
  bool are_hidden = false;
};

// Reads below `root` (normally "") /proc/driver/nvidia/gpus, and asks whether this process may open /dev/nvidiaN: a
// cgroup or a container forbids the GPUs of other jobs. Then CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER choose among
// these GPUs as they do in CUDA:
//  - The variable has numbers, beginnings of UUIDs ("GPU-…") or parts of GPUs ("MIG-…"), all of the kind of the first
//    one. The list ends before the first entry that names no GPU ("-1"). An entry that comes twice empties the list.
//  - Of several parts of GPUs CUDA uses the first one.
//  - Without CUDA_DEVICE_ORDER=PCI_BUS_ID the fastest GPU is the first. GPUs of one model are then taken to be in the
//    order of their bus ids; between models the order is in doubt.
// A machine without NVIDIA's driver has no GPUs here.
Visible visible(const Environment& environment, const std::string& root = "");

}  // namespace hvd::cuda
