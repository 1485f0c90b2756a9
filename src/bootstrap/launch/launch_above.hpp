#pragma once
// The launcher that started this process as one of several, if its own environment no longer tells (a container with
// --cleanenv, env -i, unset): the processes above it still do.
#include <optional>
#include <span>
#include <vector>

#include "bootstrap/launch/launch.hpp"
#include "native/posix/ancestors.hpp"

namespace hvd::bootstrap {

using ListAncestors = std::vector<posix::Ancestor> (*)();

// Whether it is a process of a launcher that starts ranks by itself: these are no part of a launch around it.
bool starts_programs_itself(const posix::Ancestor& ancestor);

// The number of tasks of the Slurm step that this process belongs to, on all hosts as far as that can be known. It may
// ask scontrol, for up to 3 s.
using CountTasks = int (*)(const posix::Ancestor& slurmstepd);
int count_tasks(const posix::Ancestor& slurmstepd);

// The nearest of these processes that belongs to a launch decides. Nothing if none does, or if another launcher comes
// first.
std::optional<Launch> launch_above(std::span<const posix::Ancestor> nearest_first, CountTasks count_tasks_of);

}  // namespace hvd::bootstrap
