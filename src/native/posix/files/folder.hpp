#pragma once
// Folders and what is in them.
#include <string>
#include <vector>

namespace hvd::posix {

// Returns the names of the folder's entries, sorted, so that their order is the same in every run. Returns none if the
// folder cannot be read.
std::vector<std::string> names_in(const std::string& folder);

// Returns true if the path leads to a folder, through links too. A path that cannot be looked at is no folder.
bool is_folder(const std::string& path);

// Returns the path to which a symbolic link at `path` leads in the end, also if nothing is there. Links among the
// folders before the last name stay as they are. Returns `path` if it is no link.
std::string end_of_links(const std::string& path);

}  // namespace hvd::posix
