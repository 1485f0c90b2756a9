#pragma once
// The ways in which schedulers write spans of time.
#include <chrono>
#include <optional>
#include <string_view>

namespace hvd::schedulers {

// "2-03:04:05", "03:04:05", "04:05" (minutes and seconds). Nothing for anything else, such as UNLIMITED.
std::optional<std::chrono::seconds> duration_in(std::string_view text);
// "27:05", "27:05 L": hours and minutes, as LSF writes them.
std::optional<std::chrono::seconds> hours_and_minutes_in(std::string_view text);

}  // namespace hvd::schedulers
