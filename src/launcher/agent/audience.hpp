#pragma once
// For which processes a signal to a rank is meant. Below the process that was started in the rank's place there may be
// wrappers above the process that joined the job (sh, conda run, a profiler), and below it workers of its data loaders.
// A signal that warns or that asks for a last checkpoint would end all of these.
#include <sys/types.h>

#include <optional>
#include <vector>

#include "native/posix/processes/process.hpp"

namespace hvd::launcher {

enum class Joined {
  is_member,         // it is a rank now, or listens for stops
  listens_for_stops  // it saves when it gets a stop signal, and is a rank or was one
};

// Returns those of `all` that have joined in this way, without those below another one: they are of another job.
std::vector<posix::Descendant> joined_among(const std::vector<posix::Descendant>& all, Joined way);

// Passes the signal on to a rank. `process` was started in its place, with a process group of its own. SIGUSR1 and
// SIGUSR2 go to the process that has joined, other signals, or before a process has joined, to the whole group.
void signal_rank(pid_t process, pid_t group, int signal);

// Schedulers signal all processes of a rank, and a wrapper that does not handle the signal ends by it. The rank below
// it then becomes our child (posix::become_subreaper) and takes its place. Returns that child, or nothing if the
// wrapper has not ended in this way. `wait_status` is that of the wrapper, `group` the process group in which the rank
// was started.
std::optional<pid_t> rank_left_by(pid_t group, int wait_status);

}  // namespace hvd::launcher
