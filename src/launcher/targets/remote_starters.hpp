#pragma once
// How an agent of ours gets onto another host of a scheduler's job without ssh: by the scheduler's own command. What it
// starts belongs to the job, so that the scheduler counts it and ends it.
#include <optional>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "launcher/targets/job_around.hpp"

namespace hvd::launcher {

// The words up to the host's name; after it come the words of the command, which no shell reads. Nothing: the job's
// scheduler has no such command, or it is not along PATH.
std::optional<std::vector<std::string>> remote_starter(const JobAround& around, const Environment& environment);

}  // namespace hvd::launcher
