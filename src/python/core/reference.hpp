#pragma once
// A reference to a Python object that this scope owns.
#include "python/core/python_api.hpp"

namespace hvd::python {

class Reference {
 public:
  Reference() = default;
  // Takes over a new reference; null is allowed.
  explicit Reference(PyObject* owned) : object_(owned) {}
  static Reference to(PyObject* borrowed) {
    Py_IncRef(borrowed);
    return Reference(borrowed);
  }
  ~Reference() { Py_DecRef(object_); }
  Reference(Reference&& other) noexcept : object_(other.release()) {}
  Reference& operator=(Reference&& other) noexcept {
    PyObject* before = object_;
    object_ = other.release();
    Py_DecRef(before);
    return *this;
  }

  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  // The caller owns the reference from now on.
  PyObject* release() {
    PyObject* object = object_;
    object_ = nullptr;
    return object;
  }

 private:
  PyObject* object_ = nullptr;
};

}  // namespace hvd::python
