#pragma once
// The results of allgather and alltoall. The runtime keeps their memory, because their size was not known before.
#include "python/core/python_api.hpp"

namespace hvd::python {

// take_result(handle, index, dtype) -> a DLPack capsule of the memory itself, once for each result
PyObject* take_result(PyObject* module, PyObject* arguments);
// received_splits(handle, index, size) -> the rows that came from each rank of the set
PyObject* received_splits(PyObject* module, PyObject* arguments);

}  // namespace hvd::python
