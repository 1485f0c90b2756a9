#pragma once
// An averaging allreduce of each of several tensors, prepared through the C interface.
#include <functional>
#include <string>
#include <vector>

#include "horovod.h"
#include "mpi/tensors.hpp"

namespace hvd::benchmark {

// Returns the arguments for hvd_start(); the operations are in place. `check` ends the program at a failure.
std::vector<hvd_start_arguments> prepare_averages(hvd_runtime* runtime, const Tensors& tensors, const std::string& name,
                                                  const std::function<void(hvd_status)>& check);

}  // namespace hvd::benchmark
