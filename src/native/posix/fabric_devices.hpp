#pragma once
// The devices of this host that carry messages without sockets.
#include <string>
#include <vector>

namespace hvd::posix {

// "mlx5_0", "cxi0": InfiniBand, RoCE, Omni-Path, EFA, Slingshot, as the kernel lists them.
std::vector<std::string> fabric_devices(const std::string& sys_class = "/sys/class");

}  // namespace hvd::posix
