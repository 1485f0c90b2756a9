#pragma once
// Quotes words for a command that a POSIX shell reads.
#include <string>
#include <string_view>

namespace hvd {

// Returns the word in single quotes. A shell reads the result as one word, even if it contains blanks or quotes.
inline std::string in_shell_quotes(std::string_view word) {
  std::string text = "'";
  for (char letter : word) {
    if (letter == '\'') text += "'\\''";
    else text += letter;
  }
  return text + "'";
}

}  // namespace hvd
