#pragma once
// The results of allgather and alltoall. The runtime keeps them, because their size is not known before.
#include "python/core/python_api.hpp"

namespace hvd::python {

// take_result(handle, index, dtype) -> a DLPack capsule of the result's own memory, not a copy. Call it once for each
// result.
PyObject* take_result(PyObject* module, PyObject* arguments);
// result_bytes(handle, index) -> bytes: a copy of a result in host memory whose elements are bytes
PyObject* result_bytes(PyObject* module, PyObject* arguments);
// received_splits(handle, index, size) -> how many rows came from each rank of the process set
PyObject* received_splits(PyObject* module, PyObject* arguments);

}  // namespace hvd::python
