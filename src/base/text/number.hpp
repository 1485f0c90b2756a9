#pragma once
// Reads numbers from text.
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace hvd {

// Returns the number at the beginning of the text and removes it from the text. If there is none, or it is too large,
// returns nothing and leaves the text unchanged. For integers `base` may be given; the default is 10.
template <typename Number, typename... Base>
std::optional<Number> take_number(std::string_view& text, Base... base) {
  Number number{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base...);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

// Returns the number at the beginning of the text and ignores what follows.
template <typename Number>
std::optional<Number> leading_number(std::string_view text) {
  return take_number<Number>(text);
}

// Returns the number if the whole text is one, else nothing.
template <typename Number>
std::optional<Number> number_in(std::string_view text) {
  auto number = take_number<Number>(text);
  return text.empty() ? number : std::nullopt;
}

}  // namespace hvd
