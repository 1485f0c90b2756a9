#pragma once
// Which bootstrap this process uses: the first of mpi, pmix, pmi, environment, rendezvous, slurm, single that is
// detected and can be used here; HOROVOD_BOOTSTRAP forces one.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/environment.hpp"
#include "base/result.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/registry.hpp"

namespace hvd::bootstrap {

// Worth telling the user once per job: the caller prints it on rank 0 alone.
using Notice = std::string;

struct Chosen {
  std::unique_ptr<Bootstrap> bootstrap;  // has joined; logs every verb with its time at the level trace
  Identity identity;
  std::string why;  // "detected", "forced by HOROVOD_BOOTSTRAP"
};

// Chooses and joins. May be called again in a process once the last choice was destroyed; keeping one per process is
// cheaper. A bootstrap that was detected but cannot be used (its library is missing, its server is gone) is skipped
// with a notice if another launcher's traces lead to the next one. It never ends in `single` then: that would be N jobs
// of one rank.
Result<Chosen> choose(const Environment& environment, const Config& config, std::vector<Notice>& notices);
// The same over other bootstraps than the registered ones, for tests.
Result<Chosen> choose(std::span<const Maker> makers, const Environment& environment, const Config& config,
                      std::vector<Notice>& notices);

}  // namespace hvd::bootstrap
