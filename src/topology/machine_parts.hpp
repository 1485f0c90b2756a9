#pragma once
// What both ways of reading a machine share.
#include "topology/machine.hpp"

namespace hvd::topology::parts {

bool is_gpu(std::uint16_t pci_class, std::uint16_t vendor);
bool is_network(std::uint16_t pci_class);

// Fills the indices of one thing in the list of another from their processors, and brings the devices into order.
void connect(Machine& machine);

}  // namespace hvd::topology::parts
