#pragma once
// The singleton guard. It refuses a world of size 1 if the environment of this process, or of the processes above it,
// shows that several processes were launched together. Without the guard they would silently become N jobs of one rank
// each.
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/settings/config.hpp"
#include "base/settings/environment.hpp"
#include "bootstrap/launch/launch.hpp"
#include "bootstrap/launch/launch_above.hpp"

namespace hvd::bootstrap {

// Fails for a world of one rank in a launch of several processes. The error names the cause and what to type instead.
// Of nested launches the innermost one counts. HOROVOD_ALLOW_SINGLETON=1 switches the check off.
Status check_singleton(int world_size, const Environment& environment, const Config& config,
                       IsSocket is_socket = &is_socket_of_this_process,
                       ListAncestors list_ancestors = &posix::ancestors_of_this_process,
                       CountTasks count_tasks_of = &count_tasks);

// Returns what the user has to type so that the ranks of this launch find each other.
std::string remedy(const Launch& launch, const Environment& environment);

}  // namespace hvd::bootstrap
