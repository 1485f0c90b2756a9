#pragma once
// Cuts a text that is too long for its place.
#include <cstddef>
#include <string_view>

namespace hvd {

// Returns the first bytes of the text, at most this many. A character of UTF-8 that does not fit is left out.
inline std::string_view cut_text(std::string_view text, std::size_t most_bytes) {
  if (text.size() <= most_bytes) return text;
  std::size_t end = most_bytes;
  auto continues = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; };
  while (end > 0 && most_bytes - end < 3 && continues(end)) --end;
  return text.substr(0, continues(end) ? most_bytes : end);  // what is no UTF-8 is cut where it has to be
}

}  // namespace hvd
