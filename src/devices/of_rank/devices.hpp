#pragma once
// The devices of a rank, at most one of each kind.
#include <memory>
#include <span>

#include "devices/device.hpp"

namespace hvd::devices {

class Devices {
 public:
  // Those of the registry, and others; of two of one kind the later one counts.
  explicit Devices(std::span<const std::shared_ptr<Device>> others = {});

  // Null if there is none; the host is always there.
  Device* find(DeviceKind kind) const { return by_kind_[static_cast<std::size_t>(kind)].get(); }

 private:
  std::shared_ptr<Device> by_kind_[device_kind_count];
};

}  // namespace hvd::devices
