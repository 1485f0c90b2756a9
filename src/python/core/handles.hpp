#pragma once
// What was started and is not collected yet, and waiting for it. A table holds, by handle, what waiting returns and
// what must stay alive until then.
#include "python/core/python_api.hpp"

namespace hvd::python {

// Notes what was started: `value` is what synchronize() returns, unless `result` is given: then result(handle, value);
// `keep` must not be freed before the operation is done. Null for none. False with a Python error set.
bool keep_until_done(PyObject* handle, PyObject* value, PyObject* result, PyObject* keep);

// Whether a finish() was interrupted whose operation still goes on: nobody has its handle.
bool has_interrupted();

// The functions of the module.
PyObject* submit(PyObject* module, PyObject* const* arguments, Py_ssize_t count);
PyObject* submit_group(PyObject* module, PyObject* const* arguments, Py_ssize_t count);
PyObject* forget_all(PyObject* module, PyObject*);
PyObject* poll(PyObject* module, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
PyObject* synchronize(PyObject* module, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
PyObject* finish(PyObject* module, PyObject* handle);
PyObject* synchronize_all(PyObject* module, PyObject* handles);
PyObject* result_shape(PyObject* module, PyObject* arguments);
PyObject* result_copy(PyObject* module, PyObject* arguments);

}  // namespace hvd::python
