#include "devices/device.hpp"

#include "base/deadline.hpp"
#include "devices/registry.hpp"

namespace hvd::devices {

posix::WaitWord& nobody() noexcept {
  static posix::WaitWord word;
  return word;
}

void finish(Device& device, Stream stream) {
  auto end = device.record(stream);
  if (!end) return;
  Naps naps;
  for (;;) {
    auto is_there = device.query(*end, nullptr);
    if (!is_there || *is_there) return;
    naps.take();
  }
}

Devices::Devices(std::span<const std::shared_ptr<Device>> others) {
  auto add = [this](std::shared_ptr<Device> device) {
    by_kind_[static_cast<std::size_t>(device->kind())] = std::move(device);
  };
  for (const Maker& maker : registry()) add(maker.make());
  for (const std::shared_ptr<Device>& device : others) add(device);
}

}  // namespace hvd::devices
