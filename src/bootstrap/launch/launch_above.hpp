#pragma once
// Finds the launcher that started this process together with others if the process's own environment no longer tells it
// (a container with --cleanenv, env -i, unset). The processes above this one still tell it.
#include <optional>
#include <span>
#include <vector>

#include "bootstrap/launch/launch.hpp"
#include "native/posix/processes/ancestors.hpp"

namespace hvd::bootstrap {

using ListAncestors = std::vector<posix::Ancestor> (*)();

// True for a process of a launcher that starts its ranks itself. Its ranks do not belong to a launch around that
// launcher.
bool starts_programs_itself(const posix::Ancestor& ancestor);

// Returns the number of tasks on all hosts of the Slurm step that this process belongs to, as far as the number can be
// known. It may ask scontrol, for up to 3 s.
using CountTasks = int (*)(const posix::Ancestor& slurmstepd);
int count_tasks(const posix::Ancestor& slurmstepd);

// The nearest process that belongs to a launch decides. Returns nullopt if no process does, or if a process of a
// launcher that starts its ranks itself comes first.
std::optional<Launch> launch_above(std::span<const posix::Ancestor> nearest_first, CountTasks count_tasks_of);

}  // namespace hvd::bootstrap
