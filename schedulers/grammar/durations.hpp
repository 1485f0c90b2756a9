#pragma once
// The forms in which schedulers write spans of time.
#include <chrono>
#include <optional>
#include <string_view>

namespace hvd::schedulers {

// Reads "2-03:04:05", "03:04:05" or "04:05" (minutes and seconds). Returns nullopt for any other text, such as
// UNLIMITED.
std::optional<std::chrono::seconds> duration_in(std::string_view text);
// Reads "27:05" or "27:05 L": hours and minutes, as LSF writes them.
std::optional<std::chrono::seconds> hours_and_minutes_in(std::string_view text);

}  // namespace hvd::schedulers
