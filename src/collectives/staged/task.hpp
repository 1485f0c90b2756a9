#pragma once
// A collective of tensors in the memory of a device, over links that carry host memory only.
#include <memory>

#include "base/collective.hpp"
#include "collectives/algorithm.hpp"

namespace hvd::collectives::staged {

// The team has a device and a host team, whose selector can do the same collective in host memory.
std::unique_ptr<Task> plan(const Collective& collective, Team& team);

}  // namespace hvd::collectives::staged
