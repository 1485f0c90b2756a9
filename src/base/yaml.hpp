#pragma once
// The part of YAML that configuration files here use: sections of "key: value" lines, indented by blanks, and lists of
// one value per line. Anything may stand below keys that mean nothing here.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace hvd {

struct YamlEntry {
  std::string key;    // "section.key", or "key" at the outermost level; every item of a list has the key of the list
  std::string value;  // as it is written, with its quotes
  int line = 0;
  bool has_keys_below = false;  // or items of a list
};

// What a key of the outermost level is.
enum class YamlKind { unknown, value, section, list };

// A message about a mistake names the file and the line, what was expected and what was found.
Result<std::vector<YamlEntry>> read_yaml(std::string_view text, const std::string& file_name,
                                         const std::function<YamlKind(std::string_view)>& kind_of);

// The text of a value. The message of an error goes on behind "must be".
Result<std::string> single_value(const YamlEntry& entry);

}  // namespace hvd
