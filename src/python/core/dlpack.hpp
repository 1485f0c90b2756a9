#pragma once
// The structures of DLPack 1.x (dmlc.github.io/dlpack) by which tensors pass between libraries; their layout is fixed.
#include <cstdint>

namespace hvd::python {

struct DlpackType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
  bool operator==(const DlpackType&) const = default;
};

struct DlpackTensor {
  void* data;
  std::int32_t device_type, device_id;
  std::int32_t dimensions;
  DlpackType type;
  std::int64_t* shape;
  std::int64_t* strides;  // distances in elements; null if the tensor is contiguous
  std::uint64_t byte_offset;
};

// A tensor with an owner. A capsule named "dltensor" holds one.
struct DlpackManagedTensor {
  DlpackTensor tensor;
  void* context;
  void (*free)(DlpackManagedTensor* self);  // may be called on any thread
};

}  // namespace hvd::python
