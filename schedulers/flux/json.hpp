#pragma once
// Reads the JSON of Flux. It can read as much of JSON as Flux's resource sets need.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace hvd::schedulers {

struct Json {
  enum class Kind { other, number, text, list, object };
  Kind kind = Kind::other;  // other: null, true, false
  double number = 0;
  std::string text;
  std::vector<Json> items;
  std::map<std::string, Json, std::less<>> members;

  // Returns the member of this name and kind; null if there is none.
  const Json* member(std::string_view name, Kind wanted) const;
};

// Reads the whole text. White space around it is skipped.
Result<Json> read_json(std::string_view text);

}  // namespace hvd::schedulers
