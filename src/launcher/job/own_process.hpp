#pragma once
// What horovodrun makes of its own process before it starts anything.
#include "base/result.hpp"
#include "launcher/job/job_options.hpp"
#include "native/posix/signals.hpp"

namespace hvd::launcher {

// Enough open files for its ranks and hosts; signals become readable, SIGPIPE is ignored; orphans below us become
// our children; libraries see nothing of another launcher. While the process has a single thread.
Result<posix::SignalReader> prepare_own_process(const JobOptions& options);

}  // namespace hvd::launcher
