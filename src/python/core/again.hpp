#pragma once
// The fast path of every step but the first. If a named allreduce looks like the last allreduce of its name, it is
// started with what is known from that one. This file has the Python type Known, and the dictionary of its objects.
#include "python/core/python_api.hpp"

namespace hvd::python {

// Makes the type and the module's two dictionaries. `latest` is for the global process set: name -> Known, or, for a
// group's name, a tuple of Known. `latest_of_sets` has such a dictionary for every other ProcessSet. False if a Python
// error is set.
bool add_known_type(PyObject* module);

// start_again(tensor, in_place, name, reduce_op, prescale, postscale, process_set) -> handle or None
PyObject* start_again(PyObject* module, PyObject* const* arguments, Py_ssize_t count);
// Starts a tuple of tensors, which become ready together.
PyObject* start_group_again(PyObject* module, PyObject* const* arguments, Py_ssize_t count);

}  // namespace hvd::python
