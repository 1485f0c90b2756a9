#pragma once
// An MPICH without PMIx finds the other ranks where libhorovod_pmi_bridge.so is preloaded into its process
// (bootstrap/pmi_bridge/preload.c). It is for ranks alone: neither for us, nor for a site's launcher.
#include <optional>
#include <string>

#include "base/environment.hpp"

namespace hvd::launcher {

// The LD_PRELOAD that a rank's program is to have: what is preloaded already, then the bridge. Nothing where it stays
// as it is: there is nobody to build a bridge to, the launcher is an MPI's own, HOROVOD_PMI_BRIDGE=0, the program's
// loader would complain about the bridge, or the program is one that has its libraries elsewhere (containers).
std::optional<std::string> preload_with_bridge(const std::string& program, const Environment& of_rank);

}  // namespace hvd::launcher
