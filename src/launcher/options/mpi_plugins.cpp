#include "launcher/options/mpi_plugins.hpp"

#include <algorithm>

#include "native/posix/plugins/plugin.hpp"

namespace hvd::launcher {

std::span<const MpiPlugin> mpi_plugins() {
  static constexpr MpiPlugin plugins[] = {{"mpi-mpich", "MPI of MPICH's ABI (MPICH, Intel, Cray, MVAPICH)"},
                                          {"mpi-openmpi", "MPI of Open MPI's ABI (Open MPI, Spectrum, HPC-X)"},
                                          {"mpi-abi", "MPI of the standard's ABI (MPI 5)"}};
  return plugins;
}

bool is_installed(const MpiPlugin& plugin, const Environment& environment) {
  return !posix::plugin_path(plugin.file, environment).empty();
}

bool has_mpi_plugin(const Environment& environment) {
  return std::ranges::any_of(mpi_plugins(), [&](const MpiPlugin& plugin) { return is_installed(plugin, environment); });
}

}  // namespace hvd::launcher
