#pragma once
// Quotes texts for JSON.
#include <string>
#include <string_view>

namespace hvd {

// Returns the text as a JSON string with its quotes. The text must be UTF-8.
inline std::string in_json_quotes(std::string_view text) {
  constexpr char digits[] = "0123456789abcdef";
  std::string result = "\"";
  for (char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') result += '\\';
    if (code >= 0x20) result += letter;
    else result += {'\\', 'u', '0', '0', digits[code >> 4], digits[code & 15]};
  }
  return result + "\"";
}

}  // namespace hvd
