#pragma once
// Finds the scheduler whose job this process is in.
#include <memory>
#include <string>

#include "schedulers/scheduler.hpp"

namespace hvd::schedulers {

struct Around {
  std::string key;  // the scheduler's name in the registry: "slurm"
  std::shared_ptr<const Scheduler> scheduler;
  std::string evidence;  // what shows that there is a job: "SLURM_JOB_ID=17"
  bool is_a_job() const { return key != "local"; }
};
// Returns the innermost scheduler; "local" if there is none.
Around scheduler_around(const Environment& environment);

}  // namespace hvd::schedulers
