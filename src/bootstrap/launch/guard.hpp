#pragma once
// Refuses what would be N jobs of one rank without a word: a world of size 1, though the environment, or that of the
// processes above this one, shows that several were launched together.
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/environment.hpp"
#include "base/result.hpp"
#include "bootstrap/launch/launch.hpp"
#include "bootstrap/launch/launch_above.hpp"

namespace hvd::bootstrap {

// Fails for a world of one rank in a launch of several; the error has the cause and what to type instead. The launch is
// the innermost one. HOROVOD_ALLOW_SINGLETON=1 lets it pass.
Status check_singleton(int world_size, const Environment& environment, const Config& config,
                       IsSocket is_socket = &is_socket_of_this_process,
                       ListAncestors list_ancestors = &posix::ancestors_of_this_process,
                       CountTasks count_tasks_of = &count_tasks);

// What to type so that the ranks of this launch find each other.
std::string remedy(const Launch& launch, const Environment& environment);

}  // namespace hvd::bootstrap
