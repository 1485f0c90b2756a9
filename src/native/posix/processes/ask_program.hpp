#pragma once
// Asks other programs short questions, for example `srun --mpi=list`.
#include <chrono>
#include <string>
#include <vector>

namespace hvd::posix {

// Returns what the program (found along PATH) writes to its standard output and error. Empty if it cannot be executed
// or takes too long. The program gets no input.
std::string answer_of(const std::vector<std::string>& command, std::chrono::milliseconds limit,
                      bool also_errors = true);

}  // namespace hvd::posix
