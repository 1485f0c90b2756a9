#pragma once
// The devices of a rank, at most one of each kind.
#include <memory>
#include <span>

#include "devices/device.hpp"

namespace hvd::devices {

class Devices {
 public:
  // Takes the devices of the registry and `others`. If there are two of a kind, the later one is used.
  explicit Devices(std::span<const std::shared_ptr<Device>> others = {});

  // Returns null if there is none. There is always a host device.
  Device* find(DeviceKind kind) const { return by_kind_[static_cast<std::size_t>(kind)].get(); }

 private:
  std::shared_ptr<Device> by_kind_[device_kind_count];
};

}  // namespace hvd::devices
