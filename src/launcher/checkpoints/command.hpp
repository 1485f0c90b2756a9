#pragma once
// `horovodrun --checkpoint ls|verify|diff|export` examines checkpoints without the program that wrote them.
#include <string>
#include <vector>

#include "base/settings/environment.hpp"

namespace hvd::launcher {

// Prints to stdout, and complaints to stderr. Returns the exit code: 0, 1 (damaged, or different), 2 (the command was
// not understood, or a file is not there).
int run_checkpoint_command(const std::string& action, const std::vector<std::string>& arguments,
                           const Environment& environment);

}  // namespace hvd::launcher
