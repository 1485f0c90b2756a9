#pragma once
// What a launcher of the site writes, line by line: which line is of which rank, and who failed.
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.hpp"
#include "launcher/job/first_failure.hpp"

namespace hvd::launcher {

struct LabelledLine {
  Rank rank;
  std::string_view text;
};

// How a kind of launcher speaks.
struct SiteDialect {
  const char* name;
  // The line of a rank, without the launcher's label; nothing if it is a line of the launcher's own.
  std::optional<LabelledLine> (*read_label)(std::string_view line);
  // The place of the next label in a labelled line (npos: none). Null if the launcher does not cut lines where its
  // reads end.
  std::size_t (*find_next_label)(std::string_view line);
  // Adds to `failure` what a line of the launcher's own tells about the rank that failed first. True if the line
  // tells that a rank failed.
  bool (*read_failure)(std::string_view line, FirstFailure& failure);
};

// What comes after the word, if it is there.
inline std::optional<std::string_view> after(std::string_view line, std::string_view word) {
  std::size_t at = line.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  return line.substr(at + word.size());
}

inline std::string first_word(std::string_view text) {
  return std::string(text.substr(0, text.find_first_of(" \r\n")));
}

}  // namespace hvd::launcher
