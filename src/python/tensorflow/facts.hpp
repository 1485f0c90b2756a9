#pragma once
// Kernels that tell this process's place in the job when the graph runs.

namespace hvd::tensorflow {

// Defines the operations and registers their kernels. Throws std::runtime_error.
void register_facts();

}  // namespace hvd::tensorflow
