#pragma once
// What Flux writes in JSON: as much of a reader as its resource sets take.
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

  // The member of that name and kind; null if there is none.
  const Json* member(std::string_view name, Kind wanted) const;
};

// The whole of the text, white space around it left out.
Result<Json> read_json(std::string_view text);

}  // namespace hvd::schedulers
