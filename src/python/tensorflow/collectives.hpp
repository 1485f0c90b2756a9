#pragma once
// The kernels of the collectives.
#include "python/tensorflow/run.hpp"

namespace hvd::tensorflow {

// Gives the stream of TensorFlow's on which the kernel of this context (TF_OpKernelContext) runs, as the device's
// library knows it, and the number of the device. Returns 1; 0 if it runs on none. `python -m horovod.tensorflow.build`
// builds it (streams.cc), because TensorFlow's C interface has nothing like it.
using StreamOf = int (*)(void* context, void** stream, int* ordinal);

// Defines the operations and registers their kernels for CPUs. Throws std::runtime_error.
void register_collectives();

// Registers kernels for a device of TensorFlow's ("GPU"). With `streams` they work in the memory of the device, which
// is of this kind, and fail where no stream is found; with null on copies in the host's memory, for a reason that the
// user is told. TensorFlow takes the kernels of the highest priority. Tests register for "CPU", whose kernels run on no
// stream. Throws std::runtime_error.
void register_for_device(const char* device, int priority, hvd_device kind, StreamOf streams, const char* reason);

}  // namespace hvd::tensorflow
