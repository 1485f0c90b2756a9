#pragma once
// The Python type Operation: a prepared operation, which can be started any number of times.
#include "python/core/python_api.hpp"

#include <cstdint>
#include <vector>

#include "api/horovod.h"
#include "python/core/streams.hpp"

namespace hvd::python {

struct Operation {
  PyObject_HEAD hvd_op* op;
  std::uint64_t generation;  // the session in which the operation was prepared
  bool is_transient;
  int ordinal;   // the device of its tensors; -1: the host
  bool is_held;  // this object must release it; a transient operation is released with the handle of its use
};

// Makes the type and adds it to the module. On failure returns false with a Python error set.
bool add_operation_type(PyObject* module);

// prepare(name, verb, dtype, shape, reduce_op, prescale, postscale, root, process_set, transient, group, ordinal=-1) ->
// Operation
PyObject* prepare(PyObject* module, PyObject* arguments);

bool is_operation(PyObject* object);
// What a start has begun, and on which of the program's streams its input is ready.
struct Started {
  hvd_handle handle = 0;
  ProgramQueue queue = {};
};

// Submit one use of one Operation, or of several Operations in a list of (operation, input, output, rows). Pointers as
// Python passes them: tensor.data_ptr(). On failure returns false with a Python error set.
struct Use {
  PyObject* operation;
  const void* input;
  void* output;
};
bool start_operations(const std::vector<Use>& uses, Started& started);
bool start_operation(const Use& use, Started& started);
// The arguments of submit(). `splits` is null, None or a list of numbers.
struct Given {
  PyObject *operation, *input, *output, *rows, *splits;
};
bool start_operation(const Given& given, Started& started);
bool start_operations(PyObject* members, Started& started);

}  // namespace hvd::python
