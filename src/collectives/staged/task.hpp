#pragma once
// A collective of tensors in device memory, over links that carry only host memory.
#include <memory>

#include "base/collective.hpp"
#include "collectives/algorithm.hpp"

namespace hvd::collectives::staged {

// The size of one slot. A copy over a bus takes longer to begin than 64 KB take to travel over it.
inline constexpr std::size_t chunk_bytes = 512 << 10;

// The team must have a device and a host team, and the host team's selector must find an algorithm for the collective
// in host memory.
std::unique_ptr<Task> plan(const Collective& collective, Team& team);

}  // namespace hvd::collectives::staged
