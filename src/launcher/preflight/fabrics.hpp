#pragma once
// What a fabric should give, by the kind of its devices.
#include <span>
#include <string_view>

namespace hvd::launcher::preflight {

struct Fabric {
  std::string_view devices;  // the beginning of their names
  std::string_view name;
  double device_gbit;  // of the slowest device of this kind that is still common
  double tcp_share;    // of the device's rate that one connection over IP should reach
};
std::span<const Fabric> fabrics();
// Null for a device of no known kind.
const Fabric* fabric_of(std::string_view device);

}  // namespace hvd::launcher::preflight
