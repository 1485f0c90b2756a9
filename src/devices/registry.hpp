#pragma once
// All devices that have a file in this folder. The build makes the table from the list of files.
#include <memory>
#include <span>

#include "devices/device.hpp"

namespace hvd::devices {

struct Maker {
  const char* name;
  // Calls no function of the device's library (see Device::open). Null if this installation cannot work on such memory.
  std::unique_ptr<Device> (*make)();
};
std::span<const Maker> registry();

}  // namespace hvd::devices
