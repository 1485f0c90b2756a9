#include "python/core/errors.hpp"

#include <cstring>
#include <initializer_list>

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

PyObject* raise(PyObject* type, const char* text, const char* id) {
  if (type == nullptr) return nullptr;
  PyObject* message = PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(std::strlen(text)), "replace");
  PyObject* error = message == nullptr ? nullptr : PyObject_CallFunctionObjArgs(type, message, nullptr);
  PyObject* value = *id == '\0' ? none() : PyUnicode_FromString(id);
  if (error != nullptr && value != nullptr && PyObject_SetAttrString(error, "id", value) == 0)
    PyErr_SetObject(type, error);
  for (PyObject* each : {message, error, value}) Py_DecRef(each);
  return nullptr;
}

PyObject* raise_last(PyObject* type) {
  return raise(type, hvd_last_error(), hvd_last_error_id());
}

PyObject* raise_refused(hvd_status status) {
  switch (status) {
    case HVD_INVALID_ARGUMENT:
    case HVD_UNSUPPORTED: return raise_last(PyExc_ValueError);
    case HVD_OUT_OF_MEMORY: return raise_last(PyExc_MemoryError);
    default: return raise_last(internal_error());
  }
}

PyObject* raise_failed() {
  return raise_last(internal_error());
}

}  // namespace hvd::python
