#pragma once
// The little language of templates/:
//
//   {{name}}               the value; a name without a value is an error
//   %if name    … %end     these lines only if there is a value; %if not name: only if there is none
//   %each name  … %end     these lines once for every value of the list, which is {{it}} inside
//
// The build has replaced "%include NAME" by templates/parts/NAME.sh before. Values are put in as they are: the
// caller must quote what a shell will read.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace hvd::jobscripts {

using Values = std::map<std::string, std::vector<std::string>, std::less<>>;

// `name` is used in messages.
Result<std::string> fill_in(std::string_view text, const Values& values, std::string_view name);

}  // namespace hvd::jobscripts
