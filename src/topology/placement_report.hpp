#pragma once
// What was decided for a rank, for logs and --explain.
#include <string>

#include "topology/machine.hpp"
#include "topology/placement.hpp"

namespace hvd::topology {

// Returns text such as "GPU 0 (0000:07:00.0), cpus 24-31 (8 cores, NUMA node 3), memory of NUMA node 3, network device
// hsn1".
std::string describe_placement(const Machine& machine, const RankPlacement& place);

}  // namespace hvd::topology
