#pragma once
// Checkpoints for Python: entries are tuples, tensors are addresses. These functions work in this process alone. The
// communication between ranks is in horovod.checkpoint.
#include "python/core/python_api.hpp"

namespace hvd::python {

PyObject* checkpoint_save(PyObject*, PyObject* arguments);
PyObject* checkpoint_copy(PyObject*, PyObject* arguments);
PyObject* checkpoint_open(PyObject*, PyObject* argument);
PyObject* checkpoint_read(PyObject*, PyObject* arguments);
PyObject* checkpoint_library(PyObject*, PyObject* argument);
PyObject* checkpoint_claim(PyObject*, PyObject* arguments);
PyObject* checkpoint_release(PyObject*, PyObject* argument);

}  // namespace hvd::python
