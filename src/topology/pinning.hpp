#pragma once
// Shares out one set of processors among ranks of a node (for ranks with different sets: placement). These are pure
// functions of the machine; native/posix/machine/affinity does the binding.
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "topology/machine.hpp"

namespace hvd::topology {

struct PinningRequest {
  CpuMask allowed;     // what the batch system or taskset gave to this process; all shares are inside it
  int local_size = 1;  // number of ranks on this node
  // The PCI bus id of each local rank's GPU, or an empty text for a rank without a GPU. An empty list means that there
  // are no GPUs.
  std::vector<std::string> gpus;
};

struct Pinning {
  std::vector<CpuMask> masks;  // the processors of each local rank; never empty, always inside `allowed`
  bool shared = false;         // there are fewer cores than ranks, so some ranks share a core
  bool gpu_local = false;      // every rank that has a GPU is near to it
};

// Each rank gets whole, neighbouring cores:
//  - If the rank's GPU is known and there are enough cores, they are near to the GPU. A single rank keeps all allowed
//    cores.
//  - Otherwise each rank gets an even share. No share crosses the border of a package or a NUMA node if the smallest
//    share then has more than three quarters of the even one (some cores of a small part may then stay unused). No
//    share crosses the border of a cache if all shares then are even. Otherwise evenness matters more than borders.
//  - If there are fewer cores than ranks, each rank gets hardware threads of its own. If there are not enough of those
//    either, each rank gets an equal part of the processors in order, and neighbouring ranks overlap.
Result<Pinning> pin(const Machine& machine, const PinningRequest& request);

// Returns text such as "cpus 0-27 (7 cores, package 0, NUMA node 0)".
std::string describe_binding(const Machine& machine, const CpuMask& mask);

}  // namespace hvd::topology
