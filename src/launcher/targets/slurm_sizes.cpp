#include "launcher/targets/slurm_sizes.hpp"

#include "base/number.hpp"

namespace hvd::launcher {

std::vector<int> numbers_per_node(std::string_view text) {
  constexpr int most_times = 1 << 20;
  std::vector<int> numbers;
  while (!text.empty()) {
    auto number = take_number<int>(text), times = std::optional(1);
    if (text.starts_with("(x")) {
      text.remove_prefix(2);
      times = take_number<int>(text);
      if (!text.starts_with(')')) return {};
      text.remove_prefix(1);
    }
    if (!number || *number < 0 || !times || *times < 1 || *times > most_times) return {};
    numbers.insert(numbers.end(), static_cast<std::size_t>(*times), *number);
    if (text.empty()) break;
    if (!text.starts_with(',') || text.size() == 1) return {};
    text.remove_prefix(1);
  }
  return numbers;
}

}  // namespace hvd::launcher
