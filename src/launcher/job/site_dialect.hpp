#pragma once
// Reads what a launcher of the site writes, line by line: which rank a line belongs to, and which rank failed.
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

// How one kind of launcher writes.
struct SiteDialect {
  const char* name;
  // Returns a rank's line without the launcher's label; nullopt for a line of the launcher itself.
  std::optional<LabelledLine> (*read_label)(std::string_view line);
  // Returns the place of the next label in a labelled line (npos: none). Null if the launcher puts no labels into the
  // middle of lines.
  std::size_t (*find_next_label)(std::string_view line);
  // Adds to `failure` what a line of the launcher itself tells about the rank that failed first. True if the line tells
  // that a rank failed.
  bool (*read_failure)(std::string_view line, FirstFailure& failure);
  // Returns what the user can do about what a line of the launcher itself tells; empty: nothing. Null if the launcher's
  // lines need no advice.
  std::string (*advice)(std::string_view line) = nullptr;
};

// Returns the part of the line after the word; nullopt if the word is not in the line.
inline std::optional<std::string_view> after(std::string_view line, std::string_view word) {
  std::size_t at = line.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  return line.substr(at + word.size());
}

inline std::string first_word(std::string_view text) {
  return std::string(text.substr(0, text.find_first_of(" \r\n")));
}

}  // namespace hvd::launcher
