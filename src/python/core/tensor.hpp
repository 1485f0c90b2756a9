#pragma once
// A tensor as its framework's Python type shows it, read without the framework: by DLPack's table of C functions where
// the type has one (torch from 2.10 on: one call instead of six), else by asking the object as a program would.
#include "python/core/python_api.hpp"

#include <cstdint>
#include <vector>

#include "python/core/dlpack.hpp"
#include "python/core/reference.hpp"

namespace hvd::python {

struct DlpackExchange;

// What a tensor must be like to be communicated as another one was: of the same Python type, element type and shape,
// dense and contiguous in the host's memory. All members change with the GIL held.
class TensorLikeness {
 public:
  // Learns it from a tensor that was found to be dense and contiguous in the host's memory. False with a Python error
  // set.
  bool learn(PyObject* tensor);
  // If the tensor is alike: true, with its memory. False if it is not, or if that cannot be told: the long way says
  // what is wrong with it. No Python error is set.
  bool matches(PyObject* tensor, void** data) const;
  // The same for a tensor that was made like such a one, whose Python type may be a plainer one.
  bool matches_made(PyObject* tensor, void** data) const;

 private:
  bool matches_by_dlpack(PyObject* tensor, void** data) const;
  bool matches_by_asking(PyObject* tensor, void** data) const;

  Reference type_, dtype_, shape_;
  Reference is_neg_;  // the type's method; null where it has none
  const DlpackExchange* dlpack_ = nullptr;
  DlpackType dlpack_type_{};
  std::vector<std::int64_t> extents_, strides_;
  std::int64_t count_ = 1;
};

}  // namespace hvd::python
