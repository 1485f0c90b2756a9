#pragma once
// Every step but the first: a named allreduce that looks like the last one under its name is started by what is known
// of that one. The Python type Known, and the dictionary of them.
#include "python/core/python_api.hpp"

namespace hvd::python {

// Makes the type, and the module's dictionaries: `latest` (name -> Known, or a tuple of them under the name of a group)
// of the global process set, and `latest_of_sets` (ProcessSet -> such a dictionary). False with a Python error set.
bool add_known_type(PyObject* module);

// start_again(tensor, in_place, name, reduce_op, prescale, postscale, process_set) -> handle or None
PyObject* start_again(PyObject* module, PyObject* const* arguments, Py_ssize_t count);
// The same for a tuple of tensors, which become ready together.
PyObject* start_group_again(PyObject* module, PyObject* const* arguments, Py_ssize_t count);

}  // namespace hvd::python
