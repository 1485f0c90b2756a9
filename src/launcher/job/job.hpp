#pragma once
// Runs one job, on this machine or on several, from start to end.
#include "base/settings/environment.hpp"
#include "launcher/job/job_options.hpp"
#include "launcher/job/verdict.hpp"

namespace hvd::launcher {

// Returns when nothing of the job is left: no process, no file. The caller has a single thread. SIGPIPE is ignored from
// here on.
JobEnd run_job(const JobOptions& options, const Environment& environment);

}  // namespace hvd::launcher
