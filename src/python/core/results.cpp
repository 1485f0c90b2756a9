#include "python/core/results.hpp"

#include <array>
#include <memory>
#include <vector>

#include "api/horovod.h"
#include "python/core/device_kinds.hpp"
#include "python/core/dlpack.hpp"
#include "python/core/errors.hpp"
#include "python/core/session.hpp"

namespace hvd::python {
namespace {

constexpr const char* fresh = "dltensor";  // a framework that adopts the tensor renames its capsule

// The DLPack type of each hvd_dtype, in the order of hvd_dtype.
constexpr std::array<DlpackType, 13> types{{{6, 8, 1},
                                            {1, 8, 1},
                                            {0, 8, 1},
                                            {1, 16, 1},
                                            {0, 16, 1},
                                            {0, 32, 1},
                                            {0, 64, 1},
                                            {2, 16, 1},
                                            {4, 16, 1},
                                            {2, 32, 1},
                                            {2, 64, 1},
                                            {1, 32, 1},
                                            {1, 64, 1}}};

// A result's memory and the function that frees it. A Result may live longer than the session. A thread that does not
// run Python may destroy it.
struct Result {
  DlpackManagedTensor managed{};
  std::int64_t shape[HVD_MAX_DIMENSIONS]{};
  void* owner = nullptr;
  void (*free_data)(void* owner) = nullptr;

  Result() = default;
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;
  ~Result() {
    if (free_data != nullptr) free_data(owner);
  }
};

void free_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, fresh) == 0) return;  // a framework has adopted the tensor
  auto* managed = static_cast<DlpackManagedTensor*>(PyCapsule_GetPointer(capsule, fresh));
  managed->free(managed);
}

}  // namespace

PyObject* take_result(PyObject*, PyObject* arguments) {
  unsigned long long handle = 0;
  Py_ssize_t index = 0;
  int dtype = 0;
  if (!PyArg_ParseTuple(arguments, "Kni:take_result", &handle, &index, &dtype)) return nullptr;
  if (dtype < 0 || static_cast<std::size_t>(dtype) >= types.size())
    return raise(PyExc_ValueError, "take_result() takes one of the element types of _core");
  hvd_runtime* runtime = runtime_or_raise(internal_error());
  if (runtime == nullptr) return nullptr;
  auto result = std::make_unique<Result>();
  const auto place = static_cast<std::size_t>(index);
  DlpackTensor& tensor = result->managed.tensor;
  hvd_device device = HVD_HOST;
  int ordinal = 0;
  hvd_status status = hvd_result_shape(runtime, handle, place, &tensor.dimensions, result->shape);
  if (status == HVD_OK) status = hvd_result_device(runtime, handle, place, &device, &ordinal);
  if (status == HVD_OK)
    status = hvd_result_take(runtime, handle, place, &tensor.data, &result->owner, &result->free_data, nullptr);
  if (status != HVD_OK) return raise_refused(status);
  tensor.device_type = facts_of(device).value().dlpack_type;
  tensor.device_id = device == HVD_HOST ? 0 : ordinal;
  tensor.type = types[static_cast<std::size_t>(dtype)];
  tensor.shape = result->shape;
  result->managed.context = result.get();
  result->managed.free = [](DlpackManagedTensor* self) { delete static_cast<Result*>(self->context); };
  PyObject* capsule = PyCapsule_New(&result->managed, fresh, &free_capsule);
  if (capsule != nullptr) (void)result.release();
  return capsule;
}

PyObject* result_bytes(PyObject*, PyObject* arguments) {
  unsigned long long handle = 0;
  Py_ssize_t index = 0;
  if (!PyArg_ParseTuple(arguments, "Kn:result_bytes", &handle, &index)) return nullptr;
  hvd_runtime* runtime = runtime_or_raise(internal_error());
  if (runtime == nullptr) return nullptr;
  const auto place = static_cast<std::size_t>(index);
  int dimensions = 0;
  std::int64_t shape[HVD_MAX_DIMENSIONS];
  if (const hvd_status status = hvd_result_shape(runtime, handle, place, &dimensions, shape); status != HVD_OK)
    return raise_refused(status);
  std::int64_t bytes = 1;
  for (int i = 0; i < dimensions; ++i) bytes *= shape[i];
  PyObject* copy = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes));
  if (copy == nullptr) return nullptr;
  const hvd_status status =
      hvd_result_copy(runtime, handle, place, PyBytes_AsString(copy), static_cast<std::size_t>(bytes));
  if (status == HVD_OK) return copy;
  Py_DecRef(copy);
  return raise_refused(status);
}

PyObject* received_splits(PyObject*, PyObject* arguments) {
  unsigned long long handle = 0;
  Py_ssize_t index = 0, size = 0;
  if (!PyArg_ParseTuple(arguments, "Knn:received_splits", &handle, &index, &size)) return nullptr;
  hvd_runtime* runtime = runtime_or_raise(internal_error());
  if (runtime == nullptr) return nullptr;
  std::vector<std::int64_t> splits(static_cast<std::size_t>(size));
  const hvd_status status =
      hvd_result_splits(runtime, handle, static_cast<std::size_t>(index), splits.data(), splits.size());
  if (status != HVD_OK) return raise_refused(status);
  PyObject* list = PyList_New(size);
  for (Py_ssize_t i = 0; list != nullptr && i < size; ++i)
    PyList_SetItem(list, i, PyLong_FromLongLong(splits[static_cast<std::size_t>(i)]));
  return list;
}

}  // namespace hvd::python
