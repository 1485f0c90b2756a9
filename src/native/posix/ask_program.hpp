#pragma once
// Short questions to other programs: what does `srun --mpi=list` say?
#include <chrono>
#include <string>
#include <vector>

namespace hvd::posix {

// What the program (found along PATH) writes to its standard output and error; empty if it cannot be executed or takes
// too long. It reads nothing.
std::string answer_of(const std::vector<std::string>& command, std::chrono::milliseconds limit,
                      bool also_errors = true);

}  // namespace hvd::posix
