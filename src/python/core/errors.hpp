#pragma once
// Turns failures of the C API into Python exceptions.
#include "python/core/python_api.hpp"

#include "api/horovod.h"

namespace hvd::python {

// Returns horovod.common.exceptions.HorovodInternalError as a borrowed reference. Null with an error set if its import
// fails.
PyObject* internal_error();

// Returns a new reference to Py_None.
PyObject* none();

// Sets an exception of type `type`. The bytes of `text` need not be UTF-8. `id` is the error's id in docs/errors.md;
// the exception has it as its attribute `id`, None if it is empty. Always returns null, so that a caller can write
// `return raise(…)`.
PyObject* raise(PyObject* type, const char* text, const char* id = "");

// Raises the last failure of the C interface in this thread, with its id.
PyObject* raise_last(PyObject* type);

// Raises the error of a call that was refused: ValueError for the caller's mistake, else HorovodInternalError.
PyObject* raise_refused(hvd_status status);
// Raises the error of an operation that was submitted and failed: always HorovodInternalError.
PyObject* raise_failed();

}  // namespace hvd::python
