#pragma once
// The ranks of MPI_COMM_WORLD in the form that our links need.
#include "link/exchange_bootstrap.hpp"

namespace hvd::benchmark {

// Call it after MPI_Init. `fail` ends all ranks.
Ranks ranks_of_world(bool is_crowded, std::function<void(const std::string& why)> fail);

}  // namespace hvd::benchmark
