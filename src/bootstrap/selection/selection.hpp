#pragma once
// Chooses the bootstrap of this process: the first of assigned, mpi, pmix, pmi, environment, rendezvous, slurm,
// single that is detected and can be used here. HOROVOD_BOOTSTRAP forces one.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/settings/config.hpp"
#include "base/settings/environment.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/registry.hpp"

namespace hvd::bootstrap {

// A message that the user should see once per job: the caller prints it on rank 0 only.
using Notice = std::string;

struct Chosen {
  std::unique_ptr<Bootstrap> bootstrap;  // the bootstrap has joined; it logs every call with its time at the level
                                         // trace
  Identity identity;
  std::string why;  // why it was chosen: "detected", "forced by HOROVOD_BOOTSTRAP"
};

// Chooses a bootstrap and joins the job with it. May be called again in a process once the last choice was destroyed;
// keeping one choice per process is cheaper. If a detected bootstrap cannot be used (its library is missing, its server
// is gone) and another launcher has also left its variables, the next bootstrap is tried and a notice reports this.
// Such a search never ends with `single`: N jobs of one rank each would follow.
Result<Chosen> choose(const Environment& environment, const Config& config, std::vector<Notice>& notices);
// For tests: chooses among `makers` in place of the registered bootstraps.
Result<Chosen> choose(std::span<const Maker> makers, const Environment& environment, const Config& config,
                      std::vector<Notice>& notices);

}  // namespace hvd::bootstrap
