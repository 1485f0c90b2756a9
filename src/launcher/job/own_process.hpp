#pragma once
// Prepares the process of horovodrun before it starts anything.
#include "base/result.hpp"
#include "launcher/job/job_options.hpp"
#include "native/posix/processes/signals.hpp"

namespace hvd::launcher {

// Raises the limit of open files for the job's ranks and hosts, makes signals readable, ignores SIGPIPE, adopts orphans
// below this process, and hides from libraries what another launcher has set. The process has a single thread.
Result<posix::SignalReader> prepare_own_process(const JobOptions& options);

}  // namespace hvd::launcher
