#pragma once
// Decides which processors each rank of this host may use, and how many threads the rank should start.
#include <string>
#include <vector>

#include "base/settings/environment.hpp"
#include "native/posix/machine/affinity.hpp"

namespace hvd::launcher {

struct Share {
  posix::CpuMask cpus;      // processors of the rank; empty: it is not bound
  int threads = 0;          // the value for OMP_NUM_THREADS: the number of the rank's own cores; 1 if it shares cores;
                            // 0: not known
  std::string description;  // text about the binding, for --verbose
};

// Shares out only the processors that this process may use. If the ranks cannot be bound, a notice says why. That is no
// error.
std::vector<Share> share_processors(int ranks, const Environment& environment, std::vector<std::string>& notices);

}  // namespace hvd::launcher
