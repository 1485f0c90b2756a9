#pragma once
// Allreduce and Adasum of tensors in device memory, over the device links of the nodes and along the rails.
#include <cstdint>
#include <memory>

#include "collectives/algorithm.hpp"

namespace hvd::collectives::hierarchical {

// Without a `share` the chunks have the size that is expected to be the best; a team with a clock measures first. Tests
// give a share: the elements of a rank's share of a chunk.
std::unique_ptr<Task> plan_on_device(const Collective& collective, Team& team, std::int64_t share = 0);

}  // namespace hvd::collectives::hierarchical
