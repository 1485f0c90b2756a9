#pragma once
// A borrowed piece of memory with a type, and lists of such pieces. No framework type.
#include <cstddef>
#include <cstdint>

#include "base/data_type.hpp"

namespace hvd {

enum class DeviceKind : std::uint8_t { host, cuda };

struct Device {
  DeviceKind kind = DeviceKind::host;
  std::int32_t ordinal = 0;
  friend bool operator==(Device, Device) = default;
};

// A point on a device's timeline; token 0 is the past. The device that made it can wait for it.
struct Event {
  std::uint64_t token = 0;
};

struct TensorView {
  void* data = nullptr;
  std::int64_t count = 0;
  DataType dtype = DataType::f32;
  Device device;

  std::size_t bytes() const noexcept { return static_cast<std::size_t>(count) * size_of(dtype); }
};

// One tensor of a batch. Null data with count > 0 stands for zeros (a rank that has joined).
struct Segment {
  TensorView view;
  Event ready;
};

}  // namespace hvd
