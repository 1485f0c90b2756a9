#pragma once
// Finds the scheduler whose job this process is in.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "schedulers/scheduler.hpp"

namespace hvd::schedulers {

struct Around {
  std::string key;  // the scheduler's name in the registry: "slurm"
  std::shared_ptr<const Scheduler> scheduler;
  std::string evidence;  // what shows that there is a job: "SLURM_JOB_ID=17"
  // Schedulers whose variables are set, too, and why they do not count: "PBS (PBS_JOBID=3): its hosts are not known"
  std::vector<std::string> passed_over{};
  bool is_a_job() const { return key != "local"; }
};
// Returns the innermost scheduler; "local" if there is none. A job starts with the variables of the shell or job that
// submitted it, so those of another scheduler may be set, too. Then the job counts whose hosts contain this host.
Around scheduler_around(const Sources& sources);

// Returns the beginnings of the names of all schedulers' variables.
std::vector<std::string_view> prefixes_of_all();
// Returns the patterns of the names of all schedulers' files with the output of jobs (Traits::output_files).
std::vector<const char*> output_files_of_all();

}  // namespace hvd::schedulers
