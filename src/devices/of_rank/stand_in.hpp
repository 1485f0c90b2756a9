#pragma once
// Takes the place of a device on a rank that has joined and has none: its tensors are zeros, which need no device.
#include <memory>

#include "devices/device.hpp"

namespace hvd::devices {

// All its memory is host memory, and its work is done at once.
std::unique_ptr<Device> make_stand_in(DeviceKind kind);

}  // namespace hvd::devices
