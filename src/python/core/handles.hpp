#pragma once
// Operations that were started and not collected yet, and the functions that wait for them. A table holds for each
// handle what waiting returns and what must stay alive until then.
#include "python/core/python_api.hpp"

#include "api/horovod.h"

namespace hvd::python {

// Stores an operation that was started and returns its number. This number is the handle that users see; it counts from
// 1 after each init(). synchronize() returns `value`, unless `result` is given: then it returns result(handle of the C
// API, value). `keep` must not be freed before the operation is done. Each may be null. Returns null if a Python error
// is set.
PyObject* keep_until_done(hvd_handle handle, PyObject* value, PyObject* result, PyObject* keep);
// Gives the next number to an operation that was refused.
void skip_number();

// True if a finish() was interrupted and its operation is not done yet. Nobody else has the handle of such an
// operation.
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
