#pragma once
// The plugins for MPI that are installed. A plugin opens only beside its MPI library, which the program brings.
#include <span>

#include "base/environment.hpp"

namespace hvd::launcher {

struct MpiPlugin {
  const char* file;
  const char* name;  // for people
};
std::span<const MpiPlugin> mpi_plugins();  // one for each ABI
bool is_installed(const MpiPlugin& plugin, const Environment& environment);
bool has_mpi_plugin(const Environment& environment);  // any of them

}  // namespace hvd::launcher
