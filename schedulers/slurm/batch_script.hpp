#pragma once
// The script of a batch job of Slurm, and the node that it runs on.
#include <string>
#include <string_view>

#include "base/settings/environment.hpp"

namespace hvd::schedulers {

struct BatchScript {
  enum class Fate {
    unknown,  // ask again
    lost,     // the job has lost the node of its script
    over,     // the job has ended, or has no script
  };
  Fate fate = Fate::unknown;
  bool may_requeue = false;  // the job's own option
  int restarts = 0;
  std::string host, output;  // of the script
};

// Reads what `scontrol -o show job` has printed.
BatchScript batch_script_of(std::string_view shown);

// Returns the number of the batch job around this process, empty in other jobs (salloc) and outside.
std::string batch_job_of_slurm(const Environment& environment);
// Returns the place of this node among those of the job; 0 if it is not known.
int place_of_slurm_node(const Environment& environment);

}  // namespace hvd::schedulers
