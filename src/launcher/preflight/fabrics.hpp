#pragma once
// The rates that fabrics should reach, by the kind of their devices.
#include <span>
#include <string_view>

namespace hvd::launcher::preflight {

struct Fabric {
  std::string_view devices;  // the beginning of the devices' names
  std::string_view name;
  double device_gbit;  // the rate of the slowest device of this kind that is still common
  double tcp_share;    // the share of the device's rate that one TCP connection should reach
};
std::span<const Fabric> fabrics();
// Returns null if the kind of the device is not known.
const Fabric* fabric_of(std::string_view device);

}  // namespace hvd::launcher::preflight
