#pragma once
// The Python type Operation: a prepared operation, started as often as one likes.
#include "python/core/python_api.hpp"

#include <cstdint>

#include "api/horovod.h"

namespace hvd::python {

struct Operation {
  PyObject_HEAD hvd_op* op;
  std::uint64_t generation;  // of the session it was prepared in
};

// Makes the type and adds it to the module. False with a Python error set.
bool add_operation_type(PyObject* module);

// prepare(name, verb, dtype, shape, reduce_op, prescale, postscale, root, process_set, transient) -> Operation
PyObject* prepare(PyObject* module, PyObject* arguments);
// start_group([(operation, input, output, rows), ...]) -> handle
PyObject* start_group(PyObject* module, PyObject* items);

}  // namespace hvd::python
