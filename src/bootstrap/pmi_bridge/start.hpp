#pragma once
// Calls MPI_Init for an MPI library that lacks its PMI server. The library uses a bridge (bridge.hpp) that lives as
// long as the process.
#include "bootstrap/pmi_bridge/bridge.hpp"
#include "native/mpi/process.hpp"

namespace hvd::bootstrap {

// Collective, blocking. The bootstrap is never destroyed, because MPI_Finalize uses it again when the process exits.
// `space` and `nodes` are those of PmiBridge::open(). During the call the process's environment has PMI_* and lacks the
// variables that would confuse the library.
Status start_over_bridge(mpi::Process& process, Bootstrap& bootstrap, const Identity& identity,
                         const std::string& space, const std::vector<std::string>& nodes,
                         const Environment& environment, const Config& config);

}  // namespace hvd::bootstrap
