#pragma once
// The fast path of a named allreduce, from the second use of the name on. If the tensor has the same properties as the
// last tensor under this name, the operation of the last use is started again. Defines the Python type Known and the
// dictionaries of Known objects.
#include "python/core/python_api.hpp"

namespace hvd::python {

// Makes the type, and the module's dictionaries: `latest` (name -> Known, or a tuple of them under the name of a group)
// for the global process set, and `latest_of_sets` (ProcessSet -> such a dictionary). On failure returns false with a
// Python error set.
bool add_known_type(PyObject* module);

// start_again(tensor, in_place, name, reduce_op, prescale, postscale, process_set) -> handle or None
// in_place: False, True, or a function, which means True and is called with the tuple of tensors before the start.
PyObject* start_again(PyObject* module, PyObject* const* arguments, Py_ssize_t count);
// Like start_again(), for a tuple of tensors that become ready together.
PyObject* start_group_again(PyObject* module, PyObject* const* arguments, Py_ssize_t count);

}  // namespace hvd::python
