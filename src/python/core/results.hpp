#pragma once
// Results that the runtime kept because their size was not known before: of allgather and alltoall.
#include "python/core/python_api.hpp"

namespace hvd::python {

// take_result(handle, index, dtype) -> a DLPack capsule of the memory itself, once for each result
PyObject* take_result(PyObject* module, PyObject* arguments);
// received_splits(handle, index, size) -> the rows that came from each rank of the set
PyObject* received_splits(PyObject* module, PyObject* arguments);

}  // namespace hvd::python
