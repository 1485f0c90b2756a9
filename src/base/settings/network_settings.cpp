#include "base/settings/network_settings.hpp"

#include <algorithm>
#include <string>

#include "base/text/comma_list.hpp"

namespace hvd {

bool leaves_only_sockets(const NetworkSetting& setting, std::string_view value) {
  const auto words = items_of(std::string(value)), no_fabrics = items_of(std::string(setting.no_fabrics));
  return !words.empty() && value.front() != '^' && std::ranges::all_of(words, [&](const std::string& word) {
    return std::ranges::find(no_fabrics, word) != no_fabrics.end();
  });
}

}  // namespace hvd
