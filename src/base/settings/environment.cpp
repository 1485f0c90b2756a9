#include "base/settings/environment.hpp"

#include <unistd.h>

#include "base/text/number.hpp"

namespace hvd {

Environment Environment::of_this_process() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) result.set_entry(*entry);
  return result;
}

void Environment::set_entry(std::string_view entry) {
  if (auto equals = entry.find('='); equals != std::string_view::npos)
    set(std::string(entry.substr(0, equals)), std::string(entry.substr(equals + 1)));
}

std::optional<std::string> Environment::get(std::string_view name) const {
  auto found = variables_.find(name);
  if (found == variables_.end()) return std::nullopt;
  return found->second;
}

std::optional<int> Environment::number(std::string_view name) const {
  auto found = variables_.find(name);
  auto number = found == variables_.end() ? std::nullopt : number_in<int>(found->second);
  return number && *number >= 0 ? number : std::nullopt;
}

}  // namespace hvd
