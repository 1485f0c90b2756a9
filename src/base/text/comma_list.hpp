#pragma once
// Lists in variables, flags and messages, such as "eth0,ib0".
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

// Returns the items between the commas, without the empty ones.
std::vector<std::string> items_of(std::string_view list);
// Returns the items with the separator between them, as in "ssh -T n1" or "mlx5_0, mlx5_1".
std::string joined(const std::vector<std::string>& items, std::string_view separator);

}  // namespace hvd
