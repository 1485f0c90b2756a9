#pragma once
// The library libhorovod_pmi_bridge.so is preloaded into a rank and lets an MPICH without PMIx find the other ranks
// (bootstrap/pmi_bridge/preload.c). Only ranks get it; horovodrun and a site's launcher do not.
#include <optional>
#include <string>

#include "base/settings/environment.hpp"

namespace hvd::launcher {

// Returns the new LD_PRELOAD for a rank's program: what is preloaded already, then the bridge. Returns nullopt if
// LD_PRELOAD must stay as it is: there is no server that the bridge could use, the launcher is an MPI's own,
// HOROVOD_PMI_BRIDGE=0, the program's loader would complain about the bridge, or the program looks for libraries
// elsewhere (containers).
std::optional<std::string> preload_with_bridge(const std::string& program, const Environment& of_rank);

}  // namespace hvd::launcher
