#pragma once
// Lists as variables, flags and messages carry them: "eth0,ib0".
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

// The items between the commas, but for empty ones.
std::vector<std::string> items_of(std::string_view list);
// "ssh -T n1", "mlx5_0, mlx5_1"
std::string joined(const std::vector<std::string>& items, std::string_view separator);

}  // namespace hvd
