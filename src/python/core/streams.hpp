#pragma once
// The streams on which a program's framework queues its work on devices.
#include "api/horovod.h"
#include "python/core/python_api.hpp"

namespace hvd::python {

// The queue to which a program gave work: a stream on a device.
struct ProgramQueue {
  int ordinal = -1;  // the device's number; -1: the work is on the host
  void* stream = nullptr;
};

// set_stream_source(function, kind): the framework's devices are of this kind ("cuda"), and function(ordinal) returns
// the number by which the framework knows the calling thread's current stream on one of them.
PyObject* set_stream_source(PyObject* module, PyObject* arguments);

// Returns the kind of the framework's devices; HVD_HOST before set_stream_source.
hvd_device device_of_framework();
// Sets a Python error that asks for set_stream_source.
void raise_no_stream_source();

// Returns the calling thread's current queue on the device. On failure `stream` is null and a Python error is set.
ProgramQueue current_queue(int ordinal);

}  // namespace hvd::python
