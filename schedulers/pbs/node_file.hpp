#pragma once
#include <string>

#include "base/settings/environment.hpp"

namespace hvd::schedulers {

// Returns the path of the file with the hosts of a job of PBS, a line for each slot. The path of a file that is not
// there if the variable is not set, for the error of the read.
inline std::string pbs_node_file(const Environment& environment) {
  return environment.get("PBS_NODEFILE").value_or("PBS_NODEFILE");
}

}  // namespace hvd::schedulers
