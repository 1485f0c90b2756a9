#include "python/core/errors.hpp"

#include <cstring>

namespace hvd::python {

PyObject* internal_error() {
  static PyObject* cached = nullptr;
  if (cached == nullptr) {
    PyObject* exceptions = PyImport_ImportModule("horovod.common.exceptions");
    if (exceptions == nullptr) return nullptr;
    cached = PyObject_GetAttrString(exceptions, "HorovodInternalError");
    Py_DecRef(exceptions);
  }
  return cached;
}

PyObject* none() {
  Py_IncRef(Py_None);
  return Py_None;
}

PyObject* raise(PyObject* type, const char* text) {
  if (type == nullptr) return nullptr;
  PyObject* message = PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(std::strlen(text)), "replace");
  if (message != nullptr) {
    PyErr_SetObject(type, message);
    Py_DecRef(message);
  }
  return nullptr;
}

PyObject* raise_refused(hvd_status status) {
  switch (status) {
    case HVD_INVALID_ARGUMENT:
    case HVD_UNSUPPORTED: return raise(PyExc_ValueError, hvd_last_error());
    case HVD_OUT_OF_MEMORY: return raise(PyExc_MemoryError, hvd_last_error());
    default: return raise(internal_error(), hvd_last_error());
  }
}

PyObject* raise_failed() {
  return raise(internal_error(), hvd_last_error());
}

}  // namespace hvd::python
