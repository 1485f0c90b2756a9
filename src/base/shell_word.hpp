#pragma once
// Words for a command that a POSIX shell will read.
#include <string>
#include <string_view>

namespace hvd {

// The word in single quotes: a shell reads it as one word, whatever is in it.
inline std::string in_shell_quotes(std::string_view word) {
  std::string text = "'";
  for (char letter : word) {
    if (letter == '\'') text += "'\\''";
    else text += letter;
  }
  return text + "'";
}

}  // namespace hvd
