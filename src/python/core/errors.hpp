#pragma once
// Makes Python exceptions from failures of the C API.
#include "python/core/python_api.hpp"

#include "api/horovod.h"

namespace hvd::python {

// Returns horovod.common.exceptions.HorovodInternalError as a borrowed reference. Null, with an error set, if it cannot
// be imported.
PyObject* internal_error();

// Returns a new reference to Py_None.
PyObject* none();

// Sets an error of this type. `text` may hold bytes that are not UTF-8. Returns null, which the caller returns at once.
PyObject* raise(PyObject* type, const char* text);

// For a call that was refused. A mistake of the caller becomes a ValueError, every other refusal HorovodInternalError.
PyObject* raise_refused(hvd_status status);
// For an operation that was submitted and has failed. It always becomes HorovodInternalError.
PyObject* raise_failed();

}  // namespace hvd::python
