#pragma once
// Lists as variables and flags carry them: "eth0,ib0".
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

// The items between the commas, but for empty ones.
std::vector<std::string> items_of(std::string_view list);

}  // namespace hvd
