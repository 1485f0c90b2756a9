#include "launcher/targets/slurm_sizes.hpp"

#include <algorithm>
#include <charconv>

namespace hvd::launcher {

std::vector<int> numbers_per_node(std::string_view text) {
  std::vector<int> numbers;
  const char* end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    int number = 0, times = 1;
    auto read = std::from_chars(at, end, number);
    if (read.ec != std::errc{} || number < 0) return {};
    at = read.ptr;
    if (at != end && *at == '(') {
      if (end - at < 3 || at[1] != 'x') return {};
      read = std::from_chars(at + 2, end, times);
      if (read.ec != std::errc{} || times < 1 || times > 1 << 20 || read.ptr == end || *read.ptr != ')') return {};
      at = read.ptr + 1;
    }
    numbers.insert(numbers.end(), static_cast<std::size_t>(times), number);
    if (at == end) break;
    if (*at++ != ',' || at == end) return {};
  }
  return numbers;
}

}  // namespace hvd::launcher
