#pragma once
// Code that both ways of reading a machine use.
#include "topology/machine.hpp"

namespace hvd::topology::parts {

bool is_gpu(std::uint16_t pci_class, std::uint16_t vendor);
bool is_network(std::uint16_t pci_class);

// Finds by the processors which package, NUMA node, cache and core belong together, and sets their indices. Sorts the
// devices.
void connect(Machine& machine);

}  // namespace hvd::topology::parts
