#pragma once
// The operations that were started and not yet collected, and how to wait for them. A table holds for each handle the
// value that a wait returns and the objects that must stay alive until then.
#include "python/core/python_api.hpp"

#include <cstdint>

#include "python/core/operation.hpp"

namespace hvd::python {

// A waiting thread returns from the runtime at this interval to look for signals. A shutdown wakes it earlier.
inline constexpr std::int64_t wait_slice_ms = 200;

// Notes an operation that was started and returns its number. Users see this number as the handle; numbers begin at 1
// after each init(). synchronize() returns `value`, or result(handle of the C API, value) if `result` is given. `keep`
// is not freed before the operation is done. Each of the three may be null. On failure returns null with a Python error
// set.
PyObject* keep_until_done(const Started& started, PyObject* value, PyObject* result, PyObject* keep);
// Uses up one number, for an operation that was refused.
void skip_number();

// True if an operation goes on after its finish() was interrupted. Nobody has the handle of such an operation.
bool has_interrupted();

// Lets the streams of all pending operations wait for what devices still do for these, so that their tensors may go.
// Called when the runtime has stopped.
void order_streams_of_pending(hvd_runtime* runtime);

// The functions of the Python module.
PyObject* submit(PyObject* module, PyObject* const* arguments, Py_ssize_t count);
PyObject* submit_group(PyObject* module, PyObject* const* arguments, Py_ssize_t count);
PyObject* forget_all(PyObject* module, PyObject*);
PyObject* pending_outputs(PyObject* module, PyObject*);
PyObject* poll(PyObject* module, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
PyObject* synchronize(PyObject* module, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
PyObject* finish(PyObject* module, PyObject* handle);
PyObject* synchronize_all(PyObject* module, PyObject* handles);
PyObject* done_before(PyObject* module, PyObject* const* arguments, Py_ssize_t count);

}  // namespace hvd::python
