#pragma once
// Finds the devices of this host that carry messages without sockets.
#include <string>
#include <vector>

namespace hvd::posix {

// Returns names like "mlx5_0" and "cxi0" as the kernel lists them: InfiniBand, RoCE, Omni-Path, EFA, Slingshot.
std::vector<std::string> fabric_devices(const std::string& sys_class = "/sys/class");

}  // namespace hvd::posix
