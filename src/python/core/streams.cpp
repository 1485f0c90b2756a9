#include "python/core/streams.hpp"

#include <string>

#include "python/core/device_kinds.hpp"
#include "python/core/errors.hpp"
#include "python/core/reference.hpp"

namespace hvd::python {
namespace {

PyObject* source = nullptr;  // never freed, so that it outlives the interpreter
hvd_device kind_of_source = HVD_HOST;

}  // namespace

PyObject* set_stream_source(PyObject*, PyObject* arguments) {
  PyObject* function = nullptr;
  const char* name = nullptr;
  if (!PyArg_ParseTuple(arguments, "Os:set_stream_source", &function, &name)) return nullptr;
  const auto device = device_named(name);
  if (!device)
    return raise(PyExc_ValueError, "set_stream_source() takes the name of a kind of device (hvd_get_device_facts)");
  Py_IncRef(function);
  source = function;
  kind_of_source = *device;
  return none();
}

hvd_device device_of_framework() {
  return kind_of_source;
}

void raise_no_stream_source() {
  raise(internal_error(), "no framework has told how to find its streams (_core.set_stream_source)");
}

ProgramQueue current_queue(int ordinal) {
  if (source == nullptr) {
    raise_no_stream_source();
    return {ordinal, nullptr};
  }
  const Reference number(PyObject_CallFunction(source, "i", ordinal));
  if (!number) return {ordinal, nullptr};
  void* stream = PyLong_AsVoidPtr(number.get());
  if (stream != nullptr || PyErr_Occurred() != nullptr) return {ordinal, stream};
  // Frameworks know the default stream by null.
  const hvd_device_facts facts = facts_of(kind_of_source).value();
  if (facts.default_stream == nullptr)
    raise(internal_error(), ("work on the default stream of " + std::string(facts.name) +
                             " cannot be waited for; use a stream of the program's own")
                                .c_str());
  return {ordinal, facts.default_stream};
}

}  // namespace hvd::python
