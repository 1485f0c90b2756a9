#pragma once
// libhorovod_pmi_bridge.so, preloaded into a rank, lets an MPICH without PMIx find the other ranks
// (bootstrap/pmi_bridge/preload.c). Only ranks get it, not horovodrun and not a site's launcher.
#include <optional>
#include <string>

#include "base/environment.hpp"

namespace hvd::launcher {

// The new LD_PRELOAD for a rank's program: what is preloaded already, then the bridge. Nothing if LD_PRELOAD stays as
// it is: no server is there to build a bridge to, the launcher is an MPI's own, HOROVOD_PMI_BRIDGE=0, the program's
// loader would complain about the bridge, or the program looks for libraries elsewhere (containers).
std::optional<std::string> preload_with_bridge(const std::string& program, const Environment& of_rank);

}  // namespace hvd::launcher
