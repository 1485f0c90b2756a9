#pragma once
// What is in a folder.
#include <string>
#include <vector>

namespace hvd::posix {

// The names of its entries, sorted, so that their order does not change from run to run. None if it cannot be read.
std::vector<std::string> names_in(const std::string& folder);

}  // namespace hvd::posix
