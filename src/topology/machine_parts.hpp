#pragma once
// What both ways of reading a machine share.
#include "topology/machine.hpp"

namespace hvd::topology::parts {

bool is_gpu(std::uint16_t pci_class, std::uint16_t vendor);
bool is_network(std::uint16_t pci_class);

// Finds for each thing its place in the lists of the others by their processors, and sorts the devices.
void connect(Machine& machine);

}  // namespace hvd::topology::parts
