#include "python/core/process_sets.hpp"

#include <limits>

#include "api/horovod.h"
#include "python/core/errors.hpp"
#include "python/core/reference.hpp"
#include "python/core/session.hpp"

namespace hvd::python {
namespace {

PyObject* list_of(const std::vector<int>& numbers) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(numbers.size()));
  for (std::size_t i = 0; list != nullptr && i < numbers.size(); ++i)
    PyList_SetItem(list, static_cast<Py_ssize_t>(i), PyLong_FromLong(numbers[i]));
  return list;
}

bool read_id(PyObject* number, int* id) {
  const long value = PyLong_AsLong(number);
  if (PyErr_Occurred() != nullptr) return false;
  // -1 is the number of no process set
  *id = value < 0 || value > std::numeric_limits<int>::max() ? -1 : static_cast<int>(value);
  return true;
}

}  // namespace

bool read_ranks(PyObject* sequence, const char* where, std::vector<int>& ranks) {
  const Py_ssize_t count = PySequence_Size(sequence);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Reference item(PySequence_GetItem(sequence, i));
    if (!item) return false;
    const long rank = PyLong_AsLong(item.get());
    if (PyErr_Occurred() != nullptr) return false;
    if (rank < 0 || rank > std::numeric_limits<int>::max()) {
      PyErr_Format(PyExc_ValueError, "%s takes ranks; found %ld", where, rank);
      return false;
    }
    ranks.push_back(static_cast<int>(rank));
  }
  return count >= 0;
}

PyObject* process_set_ids(PyObject*, PyObject*) {
  hvd_runtime* runtime = runtime_or_raise(PyExc_ValueError);
  if (runtime == nullptr) return nullptr;
  std::vector<int> ids;
  // Another thread may add a process set between two calls: ask again until all ids have room.
  for (int count = 1; count > static_cast<int>(ids.size());) {
    ids.resize(static_cast<std::size_t>(count));
    count = hvd_process_set_ids(runtime, ids.data(), static_cast<int>(ids.size()));
    if (count >= 0 && count < static_cast<int>(ids.size())) ids.resize(static_cast<std::size_t>(count));
  }
  return list_of(ids);
}

PyObject* process_set(PyObject*, PyObject* number) {
  int id = 0;
  if (!read_id(number, &id)) return nullptr;
  hvd_runtime* runtime = runtime_or_raise(PyExc_ValueError);
  if (runtime == nullptr) return nullptr;
  int place = -1, size = 0;
  hvd_status status = hvd_process_set(runtime, id, &place, &size, nullptr, 0);
  std::vector<int> ranks(static_cast<std::size_t>(size));
  if (status == HVD_OK) status = hvd_process_set(runtime, id, nullptr, nullptr, ranks.data(), size);
  if (status != HVD_OK) return raise_last(PyExc_ValueError);
  return Py_BuildValue("(iN)", place, list_of(ranks));
}

PyObject* add_process_set(PyObject*, PyObject* sequence) {
  std::vector<int> ranks;
  if (!read_ranks(sequence, "add_process_set()", ranks)) return nullptr;
  hvd_runtime* runtime = runtime_or_raise(PyExc_ValueError);
  if (runtime == nullptr) return nullptr;
  int id = -1;
  hvd_status status;
  {
    Session::Use use(Session::get());
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_add_process_set(runtime, ranks.data(), ranks.size(), &id);
    Py_END_ALLOW_THREADS;
  }
  return status == HVD_OK ? PyLong_FromLong(id) : raise_last(PyExc_ValueError);
}

PyObject* remove_process_set(PyObject*, PyObject* number) {
  int id = 0;
  if (!read_id(number, &id)) return nullptr;
  hvd_runtime* runtime = runtime_or_raise(PyExc_ValueError);
  if (runtime == nullptr) return nullptr;
  hvd_status status;
  {
    Session::Use use(Session::get());
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_remove_process_set(runtime, id);
    Py_END_ALLOW_THREADS;
  }
  return status == HVD_OK ? none() : raise_last(PyExc_ValueError);
}

}  // namespace hvd::python
