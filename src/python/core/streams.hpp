#pragma once
// The streams on which a program's framework queues its work on devices.
#include "python/core/python_api.hpp"

namespace hvd::python {

// The queue to which a program gave work: a stream on a device.
struct ProgramQueue {
  int ordinal = -1;  // the device's number; -1: the work is on the host
  void* stream = nullptr;
};

// set_stream_source(function): function(ordinal) returns the number by which the framework knows the calling thread's
// current stream on that device.
PyObject* set_stream_source(PyObject* module, PyObject* function);

// Returns the calling thread's current queue on the device. On failure `stream` is null and a Python error is set.
ProgramQueue current_queue(int ordinal);

}  // namespace hvd::python
