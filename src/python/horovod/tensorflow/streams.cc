// What TensorFlow's C interface does not tell: the stream on which a kernel runs, as the device's library knows it.
// `python -m horovod.tensorflow.build` compiles this file against the headers of the TensorFlow that is installed.
#include <tensorflow/core/framework/op_kernel.h>
#include <xla/stream_executor/stream.h>
#include <xla/stream_executor/stream_executor.h>

#define HOROVOD_EXPORT extern "C" __attribute__((visibility("default")))

// context: a TF_OpKernelContext, which TensorFlow makes from an OpKernelContext by a cast. Returns 0 if the kernel runs
// on no stream.
HOROVOD_EXPORT int horovod_tensorflow_stream_of(void* context, void** stream, int* ordinal) {
  tensorflow::DeviceContext* device = static_cast<tensorflow::OpKernelContext*>(context)->op_device_context();
  stream_executor::Stream* of_device = device == nullptr ? nullptr : device->stream();
  if (of_device == nullptr) return 0;
  *stream = of_device->platform_specific_handle().stream;
  *ordinal = of_device->parent()->device_ordinal();
  return 1;
}

// The name of the kernel's node, for tests: it is there only if the headers describe the contexts that TensorFlow makes.
HOROVOD_EXPORT const char* horovod_tensorflow_node_of(void* context) {
  return static_cast<tensorflow::OpKernelContext*>(context)->op_kernel().name().c_str();
}

// The TensorFlow and the Horovod for which this was built.
HOROVOD_EXPORT const char* horovod_tensorflow_built_for() {
  return HOROVOD_BUILT_FOR;
}
