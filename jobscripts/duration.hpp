#pragma once
// A length of time that a person wrote, with units: "2h", "90m", "1h30m", "1d12h".
//
// A bare 2:00 is an error, because it means two minutes to Slurm and two hours to LSF.
#include <chrono>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace hvd::jobscripts {

Result<std::chrono::seconds> parse_duration(std::string_view text);

// Return the time in the forms that schedulers read: "26:30:00", and "26:30" in whole minutes, rounded up.
std::string hours_minutes_seconds(std::chrono::seconds time);
std::string hours_minutes(std::chrono::seconds time);

}  // namespace hvd::jobscripts
