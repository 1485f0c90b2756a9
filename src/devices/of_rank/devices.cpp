#include "devices/of_rank/devices.hpp"

#include "devices/registry.hpp"

namespace hvd::devices {

Devices::Devices(std::span<const std::shared_ptr<Device>> others) {
  auto add = [this](std::shared_ptr<Device> device) {
    auto& place = by_kind_[static_cast<std::size_t>(device->kind())];
    place = std::move(device);
  };
  for (const Maker& maker : registry()) add(maker.make());
  for (const std::shared_ptr<Device>& device : others) add(device);
}

}  // namespace hvd::devices
