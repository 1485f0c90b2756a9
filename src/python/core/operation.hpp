#pragma once
// The Python type Operation: a prepared operation, which can be started any number of times.
#include "python/core/python_api.hpp"

#include <cstdint>
#include <vector>

#include "api/horovod.h"

namespace hvd::python {

struct Operation {
  PyObject_HEAD hvd_op* op;
  std::uint64_t generation;  // the session in which the operation was prepared
  bool is_transient;
  bool is_held;  // this object must release it; a transient operation is released with the handle of its use
};

// Makes the type and adds it to the module. On failure returns false with a Python error set.
bool add_operation_type(PyObject* module);

// prepare(name, verb, dtype, shape, reduce_op, prescale, postscale, root, process_set, transient, group) -> Operation
PyObject* prepare(PyObject* module, PyObject* arguments);

bool is_operation(PyObject* object);
// Submit one use of one Operation, or of several Operations in a list of (operation, input, output, rows). Pointers as
// Python passes them: tensor.data_ptr(). On failure returns false with a Python error set.
struct Use {
  PyObject* operation;
  const void* input;
  void* output;
};
bool start_operations(const std::vector<Use>& uses, hvd_handle* handle);
bool start_operation(const Use& use, hvd_handle* handle);
// The arguments of submit(). `splits` is null, None or a list of numbers.
struct Given {
  PyObject *operation, *input, *output, *rows, *splits;
};
bool start_operation(const Given& given, hvd_handle* handle);
bool start_operations(PyObject* members, hvd_handle* handle);

}  // namespace hvd::python
