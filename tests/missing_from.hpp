#pragma once
// Compares the text of an error by its names, numbers and remedy. The other words of the text may change.
#include <initializer_list>
#include <string>
#include <string_view>

namespace hvd::testing {

// Returns the parts that the text lacks, and the text. Returns an empty text if it has all parts.
inline std::string missing_from(std::string_view text, std::initializer_list<std::string_view> parts) {
  std::string missing;
  for (std::string_view part : parts)
    if (text.find(part) == std::string_view::npos) missing += "'" + std::string(part) + "' ";
  return missing.empty() ? "" : missing + "in: " + std::string(text);
}

}  // namespace hvd::testing
