#pragma once
// Which processors each rank of a node gets. Pure functions of the machine: nothing is bound here
// (native/posix/affinity).
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "topology/machine.hpp"

namespace hvd::topology {

struct PinningRequest {
  CpuMask allowed;     // what this process was given (by the batch system, by taskset); the shares stay inside of it
  int local_size = 1;  // ranks on this node
  // The GPU of each local rank, by PCI bus id; an empty name for a rank without one. Empty: no GPUs.
  std::vector<std::string> gpus;
};

struct Pinning {
  std::vector<CpuMask> masks;  // by local rank; never empty, never outside of the allowed ones
  bool shared = false;         // some rank shares a core with another one, since there are fewer cores than ranks
  bool gpu_local = false;      // every rank that has a GPU is near to it
};

// Each rank gets whole, neighbouring cores:
//  - near to its GPU, where that is known and enough cores are there; a single rank keeps all that is allowed;
//  - otherwise an even share. No share crosses the border of a package or NUMA node as long as the smallest one stays
//    above three quarters of the even one (cores of a small part may then be left over), and none that of a cache as
//    long as all are even; if that cannot be, evenness goes before borders.
//  - With fewer cores than ranks each gets hardware threads of its own, and if those do not suffice either, an equal
//    part of the processors in turn: neighbouring ranks overlap.
Result<Pinning> pin(const Machine& machine, const PinningRequest& request);

// "cpus 0-27 (7 cores, package 0, NUMA node 0)"
std::string describe_binding(const Machine& machine, const CpuMask& mask);

}  // namespace hvd::topology
