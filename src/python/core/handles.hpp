#pragma once
// What was started and is not collected yet, and waiting for it. A table holds, by handle, what waiting returns and
// what must stay alive until then.
#include "python/core/python_api.hpp"

#include "api/horovod.h"

namespace hvd::python {

// Notes what was started, and gives its number: as users know handles, they count from 1 after each init(). `value` is
// what synchronize() returns, unless `result` is given: then result(handle of the C API, value); `keep` must not be
// freed before the operation is done. Null for none. Null with a Python error set.
PyObject* keep_until_done(hvd_handle handle, PyObject* value, PyObject* result, PyObject* keep);
// The next number stands for an operation that was refused.
void skip_number();

// Whether a finish() was interrupted whose operation still goes on: nobody has its handle.
bool has_interrupted();

// The functions of the module.
PyObject* submit(PyObject* module, PyObject* const* arguments, Py_ssize_t count);
PyObject* submit_group(PyObject* module, PyObject* const* arguments, Py_ssize_t count);
PyObject* forget_all(PyObject* module, PyObject*);
PyObject* pending_outputs(PyObject* module, PyObject*);
PyObject* poll(PyObject* module, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
PyObject* synchronize(PyObject* module, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
PyObject* finish(PyObject* module, PyObject* handle);
PyObject* synchronize_all(PyObject* module, PyObject* handles);

}  // namespace hvd::python
