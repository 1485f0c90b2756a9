#include "python/core/again.hpp"

#include <memory>
#include <new>
#include <vector>

#include "python/core/errors.hpp"
#include "python/core/handles.hpp"
#include "python/core/operation.hpp"
#include "python/core/reference.hpp"
#include "python/core/tensor.hpp"

namespace hvd::python {
namespace {

PyObject* known_type = nullptr;
PyObject* latest = nullptr;          // name -> Known, or a tuple of Known, of the global process set
PyObject* latest_of_sets = nullptr;  // process set -> dictionary of that kind; all sets but the global one

struct Description {
  TensorLikeness likeness;
  Reference operation, process_set;
  Reference make_output;  // makes the output tensor; called with the input tensor
  long reduce_op = 0;
  double prescale = 1, postscale = 1;
};

struct Known {
  PyObject_HEAD Description* description;
};

void deallocate_known(PyObject* self) {
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(self));
  delete reinterpret_cast<Known*>(self)->description;
  PyObject_Free(self);
  Py_DecRef(type);
}

// The constructor: Known(operation, tensor, make_output, reduce_op, prescale, postscale, process_set)
PyObject* make_known(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject *operation = nullptr, *tensor = nullptr, *make_output = nullptr, *process_set = nullptr;
  auto description = std::unique_ptr<Description>(new (std::nothrow) Description);
  if (!description) return PyErr_NoMemory();
  if (!PyArg_ParseTuple(arguments, "OOOlddO:Known", &operation, &tensor, &make_output, &description->reduce_op,
                        &description->prescale, &description->postscale, &process_set) ||
      !is_operation(operation) || !description->likeness.learn(tensor))
    return nullptr;
  description->operation = Reference::to(operation);
  description->make_output = Reference::to(make_output);
  description->process_set = Reference::to(process_set);
  auto* known = PyObject_New(Known, type);
  if (known != nullptr) known->description = description.release();
  return reinterpret_cast<PyObject*>(known);
}

// True if the argument is exactly the known one. A caller that gets false takes the slow path, which accepts every form
// of the argument.
bool says(PyObject* argument, long number) {
  if (argument == Py_None) return number == HVD_AVERAGE;
  if (!PyLong_CheckExact(argument)) return false;
  int overflow = 0;
  return PyLong_AsLongAndOverflow(argument, &overflow) == number && overflow == 0;
}
bool says(PyObject* argument, double number) {
  return PyFloat_CheckExact(argument) && PyFloat_AsDouble(argument) == number;
}

// The arguments of start_again() and start_group_again() besides the tensors.
struct Wanted {
  bool is_in_place() const { return in_place != Py_False; }
  bool has_function() const { return in_place != Py_False && in_place != Py_True; }

  PyObject *in_place, *name, *reduce_op, *prescale, *postscale, *process_set;
};

bool is_wanted(const Description& known, const Wanted& wanted) {
  return says(wanted.reduce_op, known.reduce_op) && says(wanted.prescale, known.prescale) &&
         says(wanted.postscale, known.postscale) && wanted.process_set == known.process_set.get();
}

enum class Seen { alike, different, failed };  // failed: with a Python error set

// Compares the tensor with the known tensor. Makes the output tensor, unless the reduction is in place.
Seen look_at(const Description& known, PyObject* tensor, const Wanted& wanted, Use& use, Reference& made) {
  void* input = nullptr;
  if (!known.likeness.matches(tensor, &input)) return Seen::different;
  void* output = input;
  if (!wanted.is_in_place()) {
    made = Reference(PyObject_CallFunctionObjArgs(known.make_output.get(), tensor, nullptr));
    if (!made) return Seen::failed;
    if (!known.likeness.matches_made(made.get(), &output)) return Seen::different;
  }
  use = {known.operation.get(), input, output};
  return Seen::alike;
}

// Tells the framework which tensors are about to change, if the caller wants that. Returns false after an error.
bool note_change(const Wanted& wanted, PyObject* tensors) {
  if (!wanted.has_function()) return true;
  return static_cast<bool>(Reference(PyObject_CallFunctionObjArgs(wanted.in_place, tensors, nullptr)));
}

bool note_change_of_one(const Wanted& wanted, PyObject* tensor) {
  if (!wanted.has_function()) return true;
  const Reference tensors(PyTuple_Pack(1, tensor));
  return tensors && note_change(wanted, tensors.get());
}

// Returns the Known, or the tuple of them, under the name. Null if there is none; null with a Python error set after a
// failure.
Reference find_latest(const Wanted& wanted) {
  if (!PyUnicode_CheckExact(wanted.name)) return {};
  PyObject* of_set = latest;
  if (PyDict_Size(latest_of_sets) > 0) {
    PyObject* found = PyDict_GetItemWithError(latest_of_sets, wanted.process_set);
    if (found != nullptr) of_set = found;
    else if (PyErr_Occurred() != nullptr) return {};
  }
  return Reference::to(PyDict_GetItemWithError(of_set, wanted.name));
}

bool is_known(PyObject* object) {
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == known_type;
}

const Description& description_of(PyObject* known) {
  return *reinterpret_cast<Known*>(known)->description;
}

}  // namespace

PyObject* start_again(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 7) return raise(PyExc_TypeError, "start_again() takes 7 arguments");
  PyObject* tensor = arguments[0];
  const Wanted wanted{arguments[1], arguments[2], arguments[3], arguments[4], arguments[5], arguments[6]};
  const Reference found = find_latest(wanted);  // this thread holds references of its own, because other threads may
                                                // run while tensors are compared
  if (!found) return PyErr_Occurred() == nullptr ? none() : nullptr;
  if (!is_known(found.get())) return none();
  const Description& known = description_of(found.get());
  Use use{};
  Reference made;
  const Seen seen = is_wanted(known, wanted) ? look_at(known, tensor, wanted, use, made) : Seen::different;
  if (seen != Seen::alike) return seen == Seen::different ? none() : nullptr;
  Started started;
  if (!note_change_of_one(wanted, tensor) || !start_operation(use, started)) return nullptr;
  return keep_until_done(started, made ? made.get() : tensor, nullptr, made ? tensor : nullptr);
}

PyObject* start_group_again(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 7) return raise(PyExc_TypeError, "start_group_again() takes 7 arguments");
  PyObject* tensors = arguments[0];
  const Wanted wanted{arguments[1], arguments[2], arguments[3], arguments[4], arguments[5], arguments[6]};
  const Reference found = find_latest(wanted);
  if (!found) return PyErr_Occurred() == nullptr ? none() : nullptr;
  if (!PyTuple_CheckExact(found.get()) || !PyTuple_CheckExact(tensors) ||
      PyTuple_Size(found.get()) != PyTuple_Size(tensors))
    return none();
  const Py_ssize_t members = PyTuple_Size(tensors);
  const bool in_place = wanted.is_in_place();
  Reference outputs = in_place ? Reference::to(tensors) : Reference(PyTuple_New(members));
  if (!outputs) return nullptr;
  std::vector<Use> uses(static_cast<std::size_t>(members));
  for (Py_ssize_t i = 0; i < members; ++i) {
    PyObject* member = PyTuple_GetItem(found.get(), i);
    if (!is_known(member) || !is_wanted(description_of(member), wanted)) return none();
    Reference made;
    const Seen seen =
        look_at(description_of(member), PyTuple_GetItem(tensors, i), wanted, uses[static_cast<std::size_t>(i)], made);
    if (seen != Seen::alike) return seen == Seen::different ? none() : nullptr;
    if (!in_place) PyTuple_SetItem(outputs.get(), i, made.release());
  }
  Started started;
  if (!note_change(wanted, tensors) || !start_operations(uses, started)) return nullptr;
  return keep_until_done(started, outputs.get(), nullptr, in_place ? nullptr : tensors);
}

bool add_known_type(PyObject* module) {
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(&make_known)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate_known)},
                                {0, nullptr}};
  static PyType_Spec specification = {"horovod._core.Known", sizeof(Known), 0, Py_TPFLAGS_DEFAULT, slots};
  known_type = PyType_FromSpec(&specification);
  latest = PyDict_New();
  latest_of_sets = PyDict_New();
  if (known_type == nullptr || latest == nullptr || latest_of_sets == nullptr) return false;
  for (PyObject* object : {known_type, latest, latest_of_sets}) Py_IncRef(object);
  return PyModule_AddObject(module, "Known", known_type) == 0 && PyModule_AddObject(module, "latest", latest) == 0 &&
         PyModule_AddObject(module, "latest_of_sets", latest_of_sets) == 0;
}

}  // namespace hvd::python
