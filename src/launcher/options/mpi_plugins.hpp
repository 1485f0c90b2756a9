#pragma once
// The installed plugins for MPI. A plugin can only be opened together with its MPI library, which the program brings.
#include <span>

#include "base/settings/environment.hpp"

namespace hvd::launcher {

struct MpiPlugin {
  const char* file;
  const char* name;  // name of the MPI, for people
};
std::span<const MpiPlugin> mpi_plugins();  // one plugin for each ABI
bool is_installed(const MpiPlugin& plugin, const Environment& environment);
bool has_mpi_plugin(const Environment& environment);  // true if a plugin for any MPI is installed

}  // namespace hvd::launcher
