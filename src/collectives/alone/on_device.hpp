#pragma once
// A collective of a single rank with tensors in device memory: they are copied or scaled there.
#include <memory>

#include "base/collective.hpp"
#include "collectives/algorithm.hpp"

namespace hvd::collectives::alone {

// `team` has one rank and a device. The work is queued on the collective's stream.
std::unique_ptr<Task> plan_on_device(const Collective& collective, Team& team);

}  // namespace hvd::collectives::alone
