#pragma once
// Reads the part of YAML that our configuration files use: sections of indented "key: value" lines, and lists with one
// value per line. Below keys that have no meaning here, any YAML is allowed.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace hvd {

struct YamlEntry {
  std::string key;    // the key: "section.key", or "key" if it is not indented; every item of a list has the key of the
                      // list
  std::string value;  // the text as written, with its quotes
  int line = 0;
  bool has_keys_below = false;  // true if keys or items of a list are below the key
};

// What is below a key that is not indented. The caller tells it for every such key.
enum class YamlKind { unknown, value, section, list };

// Reads the text. If it has a mistake, the error names the file and the line, what was expected and what was found.
Result<std::vector<YamlEntry>> read_yaml(std::string_view text, const std::string& file_name,
                                         const std::function<YamlKind(std::string_view)>& kind_of);

// Returns the text of the entry's value without quotes. The error's message continues a sentence that ends in "must
// be".
Result<std::string> single_value(const YamlEntry& entry);

}  // namespace hvd
