#pragma once
// How a failure of the C API becomes a Python exception.
#include "python/core/python_api.hpp"

#include "api/horovod.h"

namespace hvd::python {

// horovod.common.exceptions.HorovodInternalError; borrowed. Null with an error set if it cannot be imported.
PyObject* internal_error();

// Py_None, to be returned.
PyObject* none();

// Sets `type` with a text that may hold bytes which are not UTF-8. Returns null, to be returned at once.
PyObject* raise(PyObject* type, const char* text);

// For a call that was refused: the caller's mistake is a ValueError, everything else HorovodInternalError.
PyObject* raise_refused(hvd_status status);
// For an operation that was submitted and failed: always HorovodInternalError.
PyObject* raise_failed();

}  // namespace hvd::python
