#pragma once
// Which memory of the host is next to a GPU.
#include <string>

namespace hvd::cuda {

// The operating system's number of the NUMA node next to the GPU with this bus id, as the kernel tells below
// `root`/sys (normally "/sys"). -1 if it does not tell, as on machines of one node and in some clouds.
int memory_node_of(const std::string& bus_id, const std::string& root = "");

}  // namespace hvd::cuda
