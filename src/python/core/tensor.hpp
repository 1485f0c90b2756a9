#pragma once
// Reads a tensor of a framework's Python type without the framework. If the type has DLPack's table of C functions
// (torch from 2.10 on), it uses this table: one call instead of six. Otherwise it asks the object as a program would.
#include "python/core/python_api.hpp"

#include <cstdint>
#include <vector>

#include "python/core/dlpack.hpp"
#include "python/core/reference.hpp"

namespace hvd::python {

struct DlpackExchange;

// Describes a tensor, to recognise others that can be communicated in the same way: they have the same Python type,
// element type and shape, and are dense and contiguous in the host's memory. All members change with the GIL held.
class TensorLikeness {
 public:
  // Learns the description from a tensor that was found to be dense and contiguous in the host's memory. False if a
  // Python error is set.
  bool learn(PyObject* tensor);
  // True, with the tensor's memory, if the tensor is alike. False if it is not alike, or if that cannot be told. The
  // general path then says what is wrong with the tensor. No Python error is set.
  bool matches(PyObject* tensor, void** data) const;
  // The same test for a tensor that was made to be like the described one. Its Python type may be a base type.
  bool matches_made(PyObject* tensor, void** data) const;

 private:
  bool matches_by_dlpack(PyObject* tensor, void** data) const;
  bool matches_by_asking(PyObject* tensor, void** data) const;

  Reference type_, dtype_, shape_;
  Reference is_neg_;  // the type's method; null if the type has none
  const DlpackExchange* dlpack_ = nullptr;
  DlpackType dlpack_type_{};
  std::vector<std::int64_t> extents_, strides_;
  std::int64_t count_ = 1;
};

}  // namespace hvd::python
