#pragma once
// Borrowed memory with an element type, and lists of such pieces. Independent of any framework.
#include <cstddef>
#include <cstdint>

#include "base/data_type.hpp"

namespace hvd {

// A kind of memory. The values are part of the C API (horovod.h).
enum class DeviceKind : std::uint8_t { host, cuda, rocm };
inline constexpr int device_kind_count = 3;

const char* name_of(DeviceKind kind) noexcept;

// A queue of work on a device, which runs in order. `handle` is the name that the device's library uses for the queue.
// Null means that there is no stream.
struct Stream {
  void* handle = nullptr;
  explicit operator bool() const noexcept { return handle != nullptr; }
  friend bool operator==(Stream, Stream) = default;
};

// A point on a stream. Only the device that recorded it can interpret it. Token 0 stands for an event that is already
// over.
struct Event {
  std::uint64_t token = 0;
};

struct TensorView {
  void* data = nullptr;
  std::int64_t count = 0;
  DataType dtype = DataType::f32;

  std::size_t bytes() const noexcept { return static_cast<std::size_t>(count) * size_of(dtype); }
};

// One tensor of a batch. Null data with count > 0 stands for zeros, when this rank has joined.
struct Segment {
  TensorView view;
};

}  // namespace hvd
