#pragma once
// `horovodrun --checkpoint ls|verify|diff|export`: looks at checkpoints without the program that wrote them.
#include <string>
#include <vector>

#include "base/environment.hpp"

namespace hvd::launcher {

// Prints to stdout, complaints to stderr. The exit code: 0, 1 (damaged, or different), 2 (not understood, not there).
int run_checkpoint_command(const std::string& action, const std::vector<std::string>& arguments,
                           const Environment& environment);

}  // namespace hvd::launcher
