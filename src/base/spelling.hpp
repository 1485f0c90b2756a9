#pragma once
// Which known name somebody may have meant who wrote an unknown one.
#include <span>
#include <string_view>

namespace hvd {

// Insertions, deletions, replacements and swaps of neighbours that lead from one text to the other.
int edit_distance(std::string_view from, std::string_view to);

// The candidate with the least distance, the first of equals; empty if even that one differs in more than a third of
// its letters (the reader would be misled).
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace hvd
