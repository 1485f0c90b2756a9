#include "base/environment.hpp"

#include <unistd.h>

namespace hvd {

Environment Environment::of_this_process() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    std::string_view text(*entry);
    if (auto equals = text.find('='); equals != std::string_view::npos)
      result.set(std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)));
  }
  return result;
}

std::optional<std::string> Environment::get(std::string_view name) const {
  auto found = variables_.find(name);
  if (found == variables_.end()) return std::nullopt;
  return found->second;
}

}  // namespace hvd
