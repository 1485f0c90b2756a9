#pragma once
// The kernels of the collectives.
#include <cstdint>

namespace hvd::tensorflow {

// Defines the operations and registers their kernels. Throws std::runtime_error.
void register_collectives();

// How many operations of this process have failed because the job has, such as by the end of another rank.
std::uint64_t failures();

}  // namespace hvd::tensorflow
