#include "base/text/spelling.hpp"

#include <algorithm>
#include <vector>

namespace hvd {

int edit_distance(std::string_view from, std::string_view to) {
  // Three rows of the table that computes Levenshtein's distance with Damerau's swap.
  std::vector<int> before_last(to.size() + 1), last(to.size() + 1), current(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) current[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= from.size(); ++i) {
    before_last.swap(last);
    last.swap(current);
    current[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= to.size(); ++j) {
      bool same = from[i - 1] == to[j - 1];
      current[j] = std::min({last[j] + 1, current[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) current[j] = std::min(current[j], before_last[j - 2] + 1);
    }
  }
  return current[to.size()];
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates) {
  std::string_view nearest;
  int least = 0;
  for (std::string_view candidate : candidates) {
    int distance = edit_distance(name, candidate);
    if (nearest.empty() || distance < least) {
      nearest = candidate;
      least = distance;
    }
  }
  bool misleading = static_cast<std::size_t>(least) * 3 > std::max(name.size(), nearest.size());
  return misleading ? std::string_view{} : nearest;
}

}  // namespace hvd
