#include "devices/of_rank/devices.hpp"

#include <string>

#include "base/log.hpp"
#include "devices/of_rank/stand_in.hpp"
#include "devices/registry.hpp"

namespace hvd::devices {

Devices::Devices(std::span<const std::shared_ptr<Device>> others, int planned) : planned_(planned) {
  auto add = [this](std::shared_ptr<Device> device) {
    if (device == nullptr) return;
    auto& place = by_kind_[static_cast<std::size_t>(device->kind())];
    place = std::move(device);
  };
  for (const Maker& maker : registry()) add(maker.make());
  for (const std::shared_ptr<Device>& device : others) add(device);
}

Result<Device*> Devices::open(DeviceKind kind, int ordinal) {
  Device* device = by_kind_[static_cast<std::size_t>(kind)].get();
  if (device == nullptr)
    return Error(ErrorCode::unsupported, "it is in " + std::string(name_of(kind)) +
                                             " memory, for which this rank has no device; give a tensor in host "
                                             "memory (tensor.cpu())");
  if (device->ordinal() < 0) {
    std::lock_guard lock(mutex_);
    if (device->ordinal() < 0) {
      if (Status opened = device->open(ordinal); !opened) {
        // Nothing is wrong with the tensor if the driver is too old or the GPU is.
        if (opened.error().code == ErrorCode::unsupported) opened.error().code = ErrorCode::system;
        return opened.error();
      }
      if (planned_ >= 0 && planned_ != ordinal)
        log::warning("the first tensor of this rank is on " + describe(*device) + "; the rank was to use device " +
                     std::to_string(planned_) + ", and its processors are near to that one. hvd.local_device() " +
                     "tells a program which device to use");
    }
  }
  if (kind == DeviceKind::host || device->ordinal() == ordinal) return device;
  return Error(ErrorCode::invalid_argument, "it is on " + describe(kind, ordinal) + ", and an earlier tensor of this " +
                                                "rank on " + describe(*device) +
                                                "; keep the tensors of a rank on one device");
}

Result<Device*> Devices::open_for_zeros(DeviceKind kind) {
  if (Device* device = find(kind)) return device;
  if (has(kind)) return open(kind, planned_ < 0 ? 0 : planned_);
  std::lock_guard lock(mutex_);
  auto& place = stand_ins_[static_cast<std::size_t>(kind)];
  if (place == nullptr) place = make_stand_in(kind);
  return place.get();
}

}  // namespace hvd::devices
