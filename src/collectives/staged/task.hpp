#pragma once
// A collective of tensors in device memory, over links that carry only host memory.
#include <memory>

#include "base/collective.hpp"
#include "collectives/algorithm.hpp"

namespace hvd::collectives::staged {

// The team must have a device and a host team, and the host team's selector must find an algorithm for the collective
// in host memory.
std::unique_ptr<Task> plan(const Collective& collective, Team& team);

}  // namespace hvd::collectives::staged
