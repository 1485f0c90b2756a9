#pragma once
// Finds the known name that a user may have meant who wrote an unknown one.
#include <span>
#include <string_view>

namespace hvd {

// The number of insertions, deletions, replacements and swaps of neighbours that lead from one text to the other.
int edit_distance(std::string_view from, std::string_view to);

// The nearest candidate, the first of equally near ones. Empty if even that one differs in more than a third of its
// letters, since it would mislead the reader.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace hvd
