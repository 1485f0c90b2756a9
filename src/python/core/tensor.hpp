#pragma once
// Reads a tensor through its Python type, without the framework. If the type has DLPack's table of C functions (torch
// from 2.10 on), one call does it. Else six calls of the object's Python methods do it.
#include "python/core/python_api.hpp"

#include <cstdint>
#include <vector>

#include "python/core/dlpack.hpp"
#include "python/core/reference.hpp"

namespace hvd::python {

struct DlpackExchange;

// The properties that a tensor must share with an earlier one to be communicated in its place: Python type, element
// type, shape and device. It must be dense and contiguous in memory. All members change with the GIL held.
class TensorLikeness {
 public:
  // Reads these properties from a tensor that is dense and contiguous in memory, which the caller has checked. On
  // failure returns false with a Python error set.
  bool learn(PyObject* tensor);
  // True, with the tensor's memory in `data`, if the tensor has these properties. False if it does not or if that
  // cannot be found out; the slow path then names the reason. No Python error is set.
  bool matches(PyObject* tensor, void** data) const;
  // Like matches(), for a tensor that was made from one with these properties. Its Python type may be another, plainer
  // one.
  bool matches_made(PyObject* tensor, void** data) const;

 private:
  bool matches_by_dlpack(PyObject* tensor, void** data) const;
  bool matches_by_asking(PyObject* tensor, void** data) const;

  Reference type_, dtype_, shape_, device_;
  Reference is_neg_;  // the method is_neg of the tensor's type; null if the type has none
  const DlpackExchange* dlpack_ = nullptr;
  DlpackType dlpack_type_{};
  std::int32_t device_type_ = 0, device_id_ = 0;  // as DLPack counts
  std::vector<std::int64_t> extents_, strides_;
  std::int64_t count_ = 1;
};

}  // namespace hvd::python
