#pragma once
// All devices that are files of this folder; the table is written by the build from the listing.
#include <memory>
#include <span>

#include "devices/device.hpp"

namespace hvd::devices {

struct Maker {
  const char* name;
  std::unique_ptr<Device> (*make)();
};
std::span<const Maker> registry();

}  // namespace hvd::devices
