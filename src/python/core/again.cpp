#include "python/core/again.hpp"

#include <memory>
#include <new>

#include "python/core/errors.hpp"
#include "python/core/handles.hpp"
#include "python/core/operation.hpp"
#include "python/core/reference.hpp"
#include "python/core/tensor.hpp"

namespace hvd::python {
namespace {

PyObject* known_type = nullptr;
PyObject* latest = nullptr;

struct Description {
  TensorLikeness likeness;
  Reference operation, process_set;
  Reference make_output;  // called with the tensor
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

// Known(operation, tensor, make_output, reduce_op, prescale, postscale, process_set)
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

// Whether the argument says what is known; the long way knows what to make of anything else.
bool says(PyObject* argument, long number) {
  if (argument == Py_None) return number == HVD_AVERAGE;
  if (!PyLong_CheckExact(argument)) return false;
  int overflow = 0;
  return PyLong_AsLongAndOverflow(argument, &overflow) == number && overflow == 0;
}
bool says(PyObject* argument, double number) {
  return PyFloat_CheckExact(argument) && PyFloat_AsDouble(argument) == number;
}

}  // namespace

PyObject* start_again(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 7) return raise(PyExc_TypeError, "start_again() takes 7 arguments");
  PyObject* tensor = arguments[0];
  PyObject* found = PyUnicode_CheckExact(arguments[2]) ? PyDict_GetItemWithError(latest, arguments[2]) : nullptr;
  if (found == nullptr) return PyErr_Occurred() == nullptr ? none() : nullptr;
  Reference owner = Reference::to(found);  // looking at tensors may let other threads run
  const Description& known = *reinterpret_cast<Known*>(found)->description;
  if (!says(arguments[3], known.reduce_op) || !says(arguments[4], known.prescale) ||
      !says(arguments[5], known.postscale) || arguments[6] != known.process_set.get())
    return none();
  void* input = nullptr;
  if (!known.likeness.matches(tensor, &input)) return none();
  Reference made;
  void* output = input;
  if (arguments[1] != Py_True) {
    made = Reference(PyObject_CallFunctionObjArgs(known.make_output.get(), tensor, nullptr));
    if (!made) return nullptr;
    if (!known.likeness.matches_made(made.get(), &output)) return none();
  }
  Reference handle(start_operation(known.operation.get(), input, output));
  if (!handle || !keep_until_done(handle.get(), made ? made.get() : tensor, nullptr, made ? tensor : nullptr))
    return nullptr;
  return handle.release();
}

bool add_known_type(PyObject* module) {
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(&make_known)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate_known)},
                                {0, nullptr}};
  static PyType_Spec specification = {"horovod._core.Known", sizeof(Known), 0, Py_TPFLAGS_DEFAULT, slots};
  known_type = PyType_FromSpec(&specification);
  latest = PyDict_New();
  if (known_type == nullptr || latest == nullptr) return false;
  Py_IncRef(known_type);
  Py_IncRef(latest);
  return PyModule_AddObject(module, "Known", known_type) == 0 && PyModule_AddObject(module, "latest", latest) == 0;
}

}  // namespace hvd::python
