#pragma once
// Lists the content of a folder.
#include <string>
#include <vector>

namespace hvd::posix {

// Returns the names of the folder's entries, sorted, so that their order is the same in every run. Returns none if the
// folder cannot be read.
std::vector<std::string> names_in(const std::string& folder);

}  // namespace hvd::posix
