#pragma once
// What is left of a collective for one rank alone: its tensors are copied, or scaled, where they lie.
#include <memory>

#include "base/collective.hpp"
#include "collectives/algorithm.hpp"

namespace hvd::collectives::alone {

// Of a team of one with a device. What is issued is queued on the collective's stream.
std::unique_ptr<Task> plan_on_device(const Collective& collective, Team& team);

}  // namespace hvd::collectives::alone
