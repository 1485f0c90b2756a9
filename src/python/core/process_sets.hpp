#pragma once
// The process sets of the job by their ids. All functions raise ValueError if Horovod is not initialised.
#include "python/core/python_api.hpp"

#include <vector>

namespace hvd::python {

// process_set_ids() -> list, ascending
PyObject* process_set_ids(PyObject* module, PyObject*);
// process_set(id) -> (this rank's place, or -1; the set's ranks)
PyObject* process_set(PyObject* module, PyObject* id);
// add_process_set(ranks) -> id; collective over all ranks of the job
PyObject* add_process_set(PyObject* module, PyObject* ranks);
// remove_process_set(id); collective over all ranks of the job
PyObject* remove_process_set(PyObject* module, PyObject* id);

// Reads ranks from a sequence. On failure returns false with a Python error set, whose text begins with `where`.
bool read_ranks(PyObject* sequence, const char* where, std::vector<int>& ranks);

}  // namespace hvd::python
