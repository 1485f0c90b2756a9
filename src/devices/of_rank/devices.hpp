#pragma once
// The devices of a rank, at most one of each kind. A device is opened when it is needed.
#include <memory>
#include <mutex>
#include <span>

#include "base/result.hpp"
#include "devices/device.hpp"

namespace hvd::devices {

class Devices {
 public:
  // Takes the devices of the registry and `others`. If there are two of a kind, the later one is used. `planned` is the
  // number of the GPU that this rank is meant to use; -1 if none is planned.
  explicit Devices(std::span<const std::shared_ptr<Device>> others = {}, int planned = -1);

  // Returns null if there is none, or if it is not open. There is always a host device.
  Device* find(DeviceKind kind) const {
    Device* device = by_kind_[static_cast<std::size_t>(kind)].get();
    return device == nullptr || device->ordinal() < 0 ? nullptr : device;
  }
  // True if this rank can work on memory of this kind.
  bool has(DeviceKind kind) const { return by_kind_[static_cast<std::size_t>(kind)] != nullptr; }
  // Returns the device for a tensor that is on this one. The first tensor decides: the device is opened there. Fails if
  // an earlier tensor was on another device of the kind. Any thread.
  Result<Device*> open(DeviceKind kind, int ordinal);
  // Returns the device for a rank that has no tensor and takes part with zeros. It opens the planned one. If this rank
  // has no device, it is a stand-in of host memory. Fails if the device cannot be opened.
  Result<Device*> open_for_zeros(DeviceKind kind);

 private:
  const int planned_;
  std::mutex mutex_;  // allows one opening at a time
  std::shared_ptr<Device> by_kind_[device_kind_count];
  std::unique_ptr<Device> stand_ins_[device_kind_count];
};

}  // namespace hvd::devices
