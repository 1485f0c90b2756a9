#include "python/core/operation.hpp"

#include <string>
#include <vector>

#include "python/core/errors.hpp"
#include "python/core/handles.hpp"
#include "python/core/session.hpp"

namespace hvd::python {
namespace {

PyObject* operation_type = nullptr;

// A pointer as Python passes it: tensor.data_ptr().
bool read_pointer(PyObject* number, void** pointer) {
  *pointer = PyLong_AsVoidPtr(number);
  return *pointer != nullptr || PyErr_Occurred() == nullptr;
}

// The runtime that `operation` belongs to, or null with a Python error set.
hvd_runtime* runtime_of(const Operation* operation) {
  hvd_runtime* runtime = runtime_or_raise(internal_error());
  if (runtime != nullptr && operation->generation != Session::get().generation()) {
    raise(internal_error(), "this operation was prepared before hvd.shutdown(); prepare it again after hvd.init()");
    return nullptr;
  }
  return runtime;
}

PyObject* raise_not_started(hvd_status status) {
  std::string text = hvd_last_error();
  if (status != HVD_INVALID_ARGUMENT || text.find("in flight already") == std::string::npos || !has_interrupted())
    return raise_refused(status);
  text +=
      ". A call that waited was interrupted before, and its operation waits on: other ranks have not come to it. "
      "To begin anew, call hvd.shutdown() and hvd.init() on all ranks";
  return raise(PyExc_ValueError, text.c_str());
}

// A transient one that was started goes with its handle.
void hand_over(Operation* operation) {
  if (operation->is_transient) operation->is_held = false;
}

PyObject* start(Operation* operation, const void* input, void* output, std::int64_t rows) {
  hvd_runtime* runtime = runtime_of(operation);
  if (runtime == nullptr) return nullptr;
  hvd_start_arguments start_arguments = hvd_use_of(operation->op, input, output);
  start_arguments.first_dimension = rows;
  hvd_handle handle = 0;
  const hvd_status status = hvd_start(runtime, &start_arguments, 1, &handle);
  if (status != HVD_OK) return raise_not_started(status);
  hand_over(operation);
  return PyLong_FromUnsignedLongLong(handle);
}

PyObject* start_together(const std::vector<hvd_start_arguments>& members) {
  hvd_runtime* runtime = runtime_or_raise(internal_error());
  if (runtime == nullptr) return nullptr;
  hvd_handle handle = 0;
  const hvd_status status = hvd_start(runtime, members.data(), members.size(), &handle);
  return status == HVD_OK ? PyLong_FromUnsignedLongLong(handle) : raise_not_started(status);
}

void deallocate(PyObject* self) {
  auto* operation = reinterpret_cast<Operation*>(self);
  const Session& session = Session::get();
  if (operation->is_held && session.runtime() != nullptr && operation->generation == session.generation())
    hvd_op_release(session.runtime(), operation->op);
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(self));
  PyObject_Free(self);
  Py_DecRef(type);
}

bool read_shape(PyObject* shape, std::vector<std::int64_t>& dimensions) {
  const Py_ssize_t count = PyTuple_Size(shape);
  if (count < 0) return false;
  dimensions.reserve(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    const long long dimension = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    if (dimension == -1 && PyErr_Occurred() != nullptr) return false;
    dimensions.push_back(dimension);
  }
  return true;
}

bool read_group_member(PyObject* item, std::vector<hvd_start_arguments>& members) {
  PyObject* object = nullptr;
  PyObject* input = nullptr;
  PyObject* output = nullptr;
  long long rows = 0;
  if (!PyArg_ParseTuple(item, "OOOL", &object, &input, &output, &rows)) return false;
  if (!is_operation(object)) {
    raise(PyExc_TypeError, "submit_group() takes a list of (Operation, input, output, rows)");
    return false;
  }
  auto* operation = reinterpret_cast<Operation*>(object);
  if (runtime_of(operation) == nullptr) return false;
  void* from = nullptr;
  hvd_start_arguments member = hvd_use_of(operation->op, nullptr, nullptr);
  member.first_dimension = rows;
  if (!read_pointer(input, &from) || !read_pointer(output, &member.output)) return false;
  member.input = from;
  members.push_back(member);
  return true;
}

}  // namespace

PyObject* prepare(PyObject*, PyObject* arguments) {
  hvd_op_description description{};
  description.struct_size = sizeof description;
  int verb = 0, dtype = 0, reduce_op = 0;
  PyObject* shape = nullptr;
  if (!PyArg_ParseTuple(arguments, "siiO!iddiip:prepare", &description.name, &verb, &dtype, &PyTuple_Type, &shape,
                        &reduce_op, &description.prescale, &description.postscale, &description.root_rank,
                        &description.process_set, &description.transient)) {
    return nullptr;
  }
  std::vector<std::int64_t> dimensions;
  if (!read_shape(shape, dimensions)) return nullptr;
  hvd_runtime* runtime = runtime_or_raise(internal_error());
  if (runtime == nullptr) return nullptr;
  description.verb = static_cast<hvd_verb>(verb);
  description.dtype = static_cast<hvd_dtype>(dtype);
  description.reduce_op = static_cast<hvd_reduce_op>(reduce_op);
  description.dimensions = static_cast<int>(dimensions.size());
  description.shape = dimensions.data();
  hvd_op* op = nullptr;
  const hvd_status status = hvd_prepare(runtime, &description, &op);
  if (status != HVD_OK) return raise_refused(status);

  auto* operation = PyObject_New(Operation, reinterpret_cast<PyTypeObject*>(operation_type));
  if (operation == nullptr) return nullptr;
  operation->op = op;
  operation->generation = Session::get().generation();
  operation->is_transient = description.transient != 0;
  operation->is_held = true;
  return reinterpret_cast<PyObject*>(operation);
}

bool is_operation(PyObject* object) {
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == operation_type;
}

PyObject* start_operation(const Use& use) {
  return start(reinterpret_cast<Operation*>(use.operation), use.input, use.output, 0);
}

PyObject* start_operations(const std::vector<Use>& uses) {
  std::vector<hvd_start_arguments> members;
  members.reserve(uses.size());
  for (const Use& use : uses) {
    const auto* operation = reinterpret_cast<const Operation*>(use.operation);
    if (runtime_of(operation) == nullptr) return nullptr;
    members.push_back({operation->op, use.input, use.output, 0});
  }
  return start_together(members);
}

PyObject* start_operation(PyObject* operation, PyObject* input, PyObject* output, PyObject* rows) {
  void *from = nullptr, *to = nullptr;
  if (!read_pointer(input, &from) || !read_pointer(output, &to)) return nullptr;
  const long long count = PyLong_AsLongLong(rows);
  if (count == -1 && PyErr_Occurred() != nullptr) return nullptr;
  return start(reinterpret_cast<Operation*>(operation), from, to, count);
}

PyObject* start_operations(PyObject* items) {
  const Py_ssize_t count = PyList_Size(items);
  if (count < 0) return nullptr;
  std::vector<hvd_start_arguments> members;
  members.reserve(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!read_group_member(PyList_GetItem(items, i), members)) return nullptr;
  }
  PyObject* handle = start_together(members);
  for (Py_ssize_t i = 0; handle != nullptr && i < count; ++i)
    hand_over(reinterpret_cast<Operation*>(PyTuple_GetItem(PyList_GetItem(items, i), 0)));
  return handle;
}

bool add_operation_type(PyObject* module) {
  static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(&deallocate)}, {0, nullptr}};
  static PyType_Spec specification = {"horovod._core.Operation", sizeof(Operation), 0, Py_TPFLAGS_DEFAULT, slots};
  operation_type = PyType_FromSpec(&specification);
  if (operation_type == nullptr) return false;
  Py_IncRef(operation_type);
  return PyModule_AddObject(module, "Operation", operation_type) == 0;
}

}  // namespace hvd::python
