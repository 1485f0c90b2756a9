#pragma once
// The kernels of the collectives.

namespace hvd::tensorflow {

// Defines the operations and registers their kernels. Throws std::runtime_error.
void register_collectives();

}  // namespace hvd::tensorflow
