#include "schedulers/grammar/durations.hpp"

#include "base/text/number.hpp"

namespace hvd::schedulers {
namespace {

// Adds up numbers in base 60. The first number may be larger than 59.
std::optional<std::int64_t> sum_in(std::string_view text, int least, int most) {
  std::int64_t sum = 0;
  for (int count = 1; count <= most; ++count) {
    bool is_signed = text.starts_with('-') || text.starts_with('+');
    auto number = is_signed ? std::nullopt : take_number<std::int32_t>(text);
    if (!number || (count > 1 && *number > 59)) return std::nullopt;
    sum = sum * 60 + *number;
    if (text.empty()) return count < least ? std::nullopt : std::optional(sum);
    if (!text.starts_with(':')) return std::nullopt;
    text.remove_prefix(1);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::chrono::seconds> duration_in(std::string_view text) {
  std::int64_t days = 0;
  std::size_t dash = text.find('-');
  if (dash != std::string_view::npos) {
    auto number = number_in<std::int32_t>(text.substr(0, dash));
    if (!number || *number < 0) return std::nullopt;
    days = *number;
    text.remove_prefix(dash + 1);
  }
  auto seconds = sum_in(text, days > 0 ? 3 : 2, 3);
  if (!seconds) return std::nullopt;
  return std::chrono::seconds(days * 86400 + *seconds);
}

std::optional<std::chrono::seconds> hours_and_minutes_in(std::string_view text) {
  auto minutes = sum_in(text.substr(0, text.find_first_of(" \n")), 2, 2);
  if (!minutes) return std::nullopt;
  return std::chrono::seconds(*minutes * 60);
}

}  // namespace hvd::schedulers
