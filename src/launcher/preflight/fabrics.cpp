#include "launcher/preflight/fabrics.hpp"

namespace hvd::launcher::preflight {

std::span<const Fabric> fabrics() {
  static constexpr Fabric all[] = {
      {"mlx4_", "InfiniBand or RoCE (ConnectX-3)", 40, 0.15},
      {"mlx5_", "InfiniBand or RoCE (ConnectX)", 100, 0.08},
      {"cxi", "Slingshot", 200, 0.05},
      {"hfi1_", "Omni-Path", 100, 0.08},
      {"opap", "Omni-Path", 100, 0.08},
      {"qib", "True Scale InfiniBand", 40, 0.15},
      {"rdmap", "EFA", 100, 0.05},
      {"efa_", "EFA", 100, 0.05},
      {"bnxt_re", "RoCE (Broadcom)", 100, 0.08},
      {"irdma", "RoCE or iWARP (Intel)", 100, 0.08},
  };
  return all;
}

const Fabric* fabric_of(std::string_view device) {
  for (const Fabric& fabric : fabrics())
    if (device.starts_with(fabric.devices)) return &fabric;
  return nullptr;
}

}  // namespace hvd::launcher::preflight
