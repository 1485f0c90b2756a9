#pragma once
// Numbers that are written as text.
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace hvd {

// The number that the text begins with, and cuts it off the text. If it begins with none, or with one that is too
// large: nothing, and the text stays as it is. Integers may be given a base, 10 without one.
template <typename Number, typename... Base>
std::optional<Number> take_number(std::string_view& text, Base... base) {
  Number number{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base...);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

// The number that the text begins with, whatever comes after it.
template <typename Number>
std::optional<Number> leading_number(std::string_view text) {
  return take_number<Number>(text);
}

// The whole text as a number; nothing if it is anything else.
template <typename Number>
std::optional<Number> number_in(std::string_view text) {
  auto number = take_number<Number>(text);
  return text.empty() ? number : std::nullopt;
}

}  // namespace hvd
