#pragma once
// Which processors each rank of this host may use, and how many threads that is good for.
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "native/posix/affinity.hpp"

namespace hvd::launcher {

struct Share {
  posix::CpuMask cpus;      // empty: not bound
  int threads = 0;          // cores of its own, for OMP_NUM_THREADS; 1 if it shares cores; 0: not known
  std::string description;  // for --verbose
};

// The shares never exceed the processors of this process. If the ranks cannot be bound, a notice says why; that is no
// error.
std::vector<Share> share_processors(int ranks, const Environment& environment, std::vector<std::string>& notices);

}  // namespace hvd::launcher
