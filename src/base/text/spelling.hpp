#pragma once
// Suggests a known name for an unknown one that a user wrote.
#include <span>
#include <string_view>

namespace hvd {

// Returns how many insertions, deletions, replacements and swaps of neighbouring letters turn one text into the other.
int edit_distance(std::string_view from, std::string_view to);

// Returns the candidate with the smallest distance; of several, the first. Returns an empty name if more than a third
// of its letters would differ, because such a suggestion would mislead the user.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace hvd
