#pragma once
// Checkpoints for Python: entries are tuples, tensors are addresses. All of it is this process's own affair; what the
// ranks tell each other about it is horovod.checkpoint's.
#include "python/core/python_api.hpp"

namespace hvd::python {

PyObject* checkpoint_save(PyObject*, PyObject* arguments);
PyObject* checkpoint_open(PyObject*, PyObject* argument);
PyObject* checkpoint_read(PyObject*, PyObject* arguments);
PyObject* checkpoint_library(PyObject*, PyObject* argument);
PyObject* checkpoint_release(PyObject*, PyObject* argument);

}  // namespace hvd::python
