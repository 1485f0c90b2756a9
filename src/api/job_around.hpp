#pragma once
// The job of a scheduler that this process is in, for the C functions that ask about it.
#include <chrono>
#include <optional>
#include <string>

#include "base/settings/environment.hpp"

namespace hvd::api {

// Returns nullopt without a job, or if it has no limit. `anew`: the scheduler itself is asked.
std::optional<std::chrono::seconds> time_left_of_job(const Environment& environment, bool anew);

// Returns the job's name in the scheduler's commands; empty without a job.
std::string name_of_job(const Environment& environment);

}  // namespace hvd::api
