#include "python/core/operation.hpp"

#include <structmember.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "python/core/errors.hpp"
#include "python/core/handles.hpp"
#include "python/core/reference.hpp"
#include "python/core/session.hpp"

namespace hvd::python {
namespace {

PyObject* operation_type = nullptr;

// Reads a pointer that Python passes as an integer: tensor.data_ptr().
bool read_pointer(PyObject* number, void** pointer) {
  *pointer = PyLong_AsVoidPtr(number);
  return *pointer != nullptr || PyErr_Occurred() == nullptr;
}

// Returns the runtime that `operation` belongs to, or null with a Python error set.
hvd_runtime* runtime_of(const Operation* operation) {
  hvd_runtime* runtime = runtime_or_raise(internal_error());
  if (runtime != nullptr && operation->generation != Session::get().generation()) {
    raise(internal_error(), "this operation was prepared before hvd.shutdown(); prepare it again after hvd.init()");
    return nullptr;
  }
  return runtime;
}

// A refused operation uses up the number of a handle, like one that was started.
bool raise_not_started(hvd_status status) {
  skip_number();
  if (std::string_view(hvd_last_error_id()) != "HVD2105" || !has_interrupted()) {
    raise_refused(status);
    return false;
  }
  std::string text = hvd_last_error();
  text +=
      ". A call that waited was interrupted before, and its operation waits on: other ranks have not come to it. "
      "To begin anew, call hvd.shutdown() and hvd.init() on all ranks";
  raise(PyExc_ValueError, text.c_str(), "HVD2105");
  return false;
}

// Called after a start. From then on a transient operation belongs to its handle, which releases it.
void hand_over(Operation* operation) {
  if (operation->is_transient) operation->is_held = false;
}

// Called for each operation of a start. All are on one device, or on the host. On failure returns false with a Python
// error set.
bool queue_on(const Operation* operation, Started& started, hvd_start_arguments& arguments) {
  if (operation->ordinal < 0) return true;
  if (started.queue.stream == nullptr) started.queue = current_queue(operation->ordinal);
  arguments.stream = started.queue.stream;
  return arguments.stream != nullptr;
}

bool start(Operation* operation, hvd_start_arguments arguments, Started& started) {
  hvd_runtime* runtime = runtime_of(operation);
  if (runtime == nullptr || !queue_on(operation, started, arguments)) return false;
  const hvd_status status = hvd_start(runtime, &arguments, 1, &started.handle);
  if (status != HVD_OK) return raise_not_started(status);
  hand_over(operation);
  return true;
}

bool start_together(const std::vector<hvd_start_arguments>& members, Started& started) {
  hvd_runtime* runtime = runtime_or_raise(internal_error());
  if (runtime == nullptr) return false;
  const hvd_status status = hvd_start(runtime, members.data(), members.size(), &started.handle);
  return status == HVD_OK || raise_not_started(status);
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

// Reads the integers of a tuple or a list.
bool read_numbers(PyObject* sequence, std::vector<std::int64_t>& numbers) {
  const Py_ssize_t count = PySequence_Size(sequence);
  if (count < 0) return false;
  numbers.reserve(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Reference item(PySequence_GetItem(sequence, i));
    if (!item) return false;
    const long long number = PyLong_AsLongLong(item.get());
    if (number == -1 && PyErr_Occurred() != nullptr) return false;
    numbers.push_back(number);
  }
  return true;
}

bool read_group_member(PyObject* item, Started& started, std::vector<hvd_start_arguments>& members) {
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
  if (!read_pointer(input, &from) || !read_pointer(output, &member.output) || !queue_on(operation, started, member))
    return false;
  member.input = from;
  members.push_back(member);
  return true;
}

}  // namespace

PyObject* prepare(PyObject*, PyObject* arguments) {
  hvd_op_description description{};
  description.struct_size = sizeof description;
  int verb = 0, dtype = 0, reduce_op = 0, ordinal = -1;
  PyObject* shape = nullptr;
  if (!PyArg_ParseTuple(arguments, "siiO!iddiipz|i:prepare", &description.name, &verb, &dtype, &PyTuple_Type, &shape,
                        &reduce_op, &description.prescale, &description.postscale, &description.root_rank,
                        &description.process_set, &description.transient, &description.group, &ordinal)) {
    return nullptr;
  }
  std::vector<std::int64_t> dimensions;
  if (!read_numbers(shape, dimensions)) return nullptr;
  hvd_runtime* runtime = runtime_or_raise(internal_error());
  if (runtime == nullptr) return nullptr;
  description.verb = static_cast<hvd_verb>(verb);
  description.dtype = static_cast<hvd_dtype>(dtype);
  description.reduce_op = static_cast<hvd_reduce_op>(reduce_op);
  description.dimensions = static_cast<int>(dimensions.size());
  description.shape = dimensions.data();
  if (ordinal >= 0) {
    description.device = device_of_framework();
    if (description.device == HVD_HOST) return raise_no_stream_source(), nullptr;
    description.device_ordinal = ordinal;
  }
  hvd_op* op = nullptr;
  const hvd_status status = hvd_prepare(runtime, &description, &op);
  if (status != HVD_OK) {
    (void)raise_not_started(status);
    return nullptr;
  }

  auto* operation = PyObject_New(Operation, reinterpret_cast<PyTypeObject*>(operation_type));
  if (operation == nullptr) return nullptr;
  operation->op = op;
  operation->generation = Session::get().generation();
  operation->is_transient = description.transient != 0;
  operation->ordinal = description.verb == HVD_JOIN ? -1 : ordinal;  // a rank that joins gives no tensor and no stream
  operation->is_held = true;
  return reinterpret_cast<PyObject*>(operation);
}

bool is_operation(PyObject* object) {
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == operation_type;
}

bool start_operation(const Use& use, Started& started) {
  auto* operation = reinterpret_cast<Operation*>(use.operation);
  return start(operation, hvd_use_of(operation->op, use.input, use.output), started);
}

bool start_operations(const std::vector<Use>& uses, Started& started) {
  std::vector<hvd_start_arguments> members;
  members.reserve(uses.size());
  for (const Use& use : uses) {
    const auto* operation = reinterpret_cast<const Operation*>(use.operation);
    if (runtime_of(operation) == nullptr) return false;
    members.push_back(hvd_use_of(operation->op, use.input, use.output));
    if (!queue_on(operation, started, members.back())) return false;
  }
  return start_together(members, started);
}

bool start_operation(const Given& given, Started& started) {
  auto* operation = reinterpret_cast<Operation*>(given.operation);
  void *from = nullptr, *to = nullptr;
  if (!read_pointer(given.input, &from) || !read_pointer(given.output, &to)) return false;
  hvd_start_arguments arguments = hvd_use_of(operation->op, from, to);
  arguments.first_dimension = PyLong_AsLongLong(given.rows);
  if (arguments.first_dimension == -1 && PyErr_Occurred() != nullptr) return false;
  if (given.splits == nullptr || given.splits == Py_None) return start(operation, arguments, started);
  std::vector<std::int64_t> parts;
  if (!read_numbers(given.splits, parts)) return false;
  arguments.splits = parts.data();
  arguments.split_count = parts.size();
  return start(operation, arguments, started);
}

bool start_operations(PyObject* items, Started& started) {
  const Py_ssize_t count = PyList_Size(items);
  if (count < 0) return false;
  std::vector<hvd_start_arguments> members;
  members.reserve(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!read_group_member(PyList_GetItem(items, i), started, members)) return false;
  }
  if (!start_together(members, started)) return false;
  for (Py_ssize_t i = 0; i < count; ++i)
    hand_over(reinterpret_cast<Operation*>(PyTuple_GetItem(PyList_GetItem(items, i), 0)));
  return true;
}

bool add_operation_type(PyObject* module) {
  static PyMemberDef members[] = {{"ordinal", T_INT, offsetof(Operation, ordinal), READONLY, nullptr}, {}};
  static PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate)}, {Py_tp_members, members}, {0, nullptr}};
  static PyType_Spec specification = {"horovod._core.Operation", sizeof(Operation), 0, Py_TPFLAGS_DEFAULT, slots};
  operation_type = PyType_FromSpec(&specification);
  if (operation_type == nullptr) return false;
  Py_IncRef(operation_type);
  return PyModule_AddObject(module, "Operation", operation_type) == 0;
}

}  // namespace hvd::python
