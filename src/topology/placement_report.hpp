#pragma once
// What was decided for a rank, for logs and --explain.
#include <span>
#include <string>

#include "topology/machine.hpp"
#include "topology/placement.hpp"

namespace hvd::topology {

// Returns text such as "GPU 0 (0000:07:00.0), cpus 24-31 (8 cores, NUMA node 3), memory of NUMA node 3, network device
// hsn1".
std::string describe_placement(const Machine& machine, const RankPlacement& place);

// Returns what is known of the links between the ranks' GPUs, such as "links: NVLink, 50 GB/s, among GPUs 0, 1 and 2,
// 3; PCIe across NUMA nodes between all others". "" for fewer than two GPUs. The ranks have one list of GPUs.
std::string describe_gpu_links(const Machine& machine, std::span<const RankPlacement> ranks);

}  // namespace hvd::topology
