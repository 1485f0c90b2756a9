#include "python/core/streams.hpp"

#include <cstdint>

#include "python/core/errors.hpp"
#include "python/core/reference.hpp"

namespace hvd::python {
namespace {

PyObject* source = nullptr;  // never freed, so that it outlives the interpreter

}  // namespace

PyObject* set_stream_source(PyObject*, PyObject* function) {
  Py_IncRef(function);
  source = function;
  return none();
}

ProgramQueue current_queue(int ordinal) {
  if (source == nullptr) {
    raise(internal_error(), "no framework has told how to find its streams (_core.set_stream_source)");
    return {ordinal, nullptr};
  }
  const Reference number(PyObject_CallFunction(source, "i", ordinal));
  if (!number) return {ordinal, nullptr};
  void* stream = PyLong_AsVoidPtr(number.get());
  if (stream != nullptr || PyErr_Occurred() != nullptr) return {ordinal, stream};
  // Frameworks know the default stream of CUDA by null. Its handle is CU_STREAM_LEGACY.
  return {ordinal, reinterpret_cast<void*>(std::uintptr_t{1})};
}

}  // namespace hvd::python
