#pragma once
// Slurm's way of writing a number for each node.
#include <string_view>
#include <vector>

namespace hvd::launcher {

// "72(x2),36": 72, 72, 36. Empty if it is malformed.
std::vector<int> numbers_per_node(std::string_view text);

}  // namespace hvd::launcher
