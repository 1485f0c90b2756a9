#include "base/text/comma_list.hpp"

#include <algorithm>

namespace hvd {

std::vector<std::string> items_of(std::string_view list) {
  std::vector<std::string> items;
  for (std::size_t at = 0; at < list.size();) {
    std::size_t end = std::min(list.find(',', at), list.size());
    if (end > at) items.emplace_back(list.substr(at, end - at));
    at = end + 1;
  }
  return items;
}

std::string joined(const std::vector<std::string>& items, std::string_view separator) {
  std::string text;
  for (const std::string& item : items) {
    if (&item != &items.front()) text += separator;
    text += item;
  }
  return text;
}

}  // namespace hvd
