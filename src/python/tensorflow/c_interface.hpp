#pragma once
// The functions of TensorFlow's C interface that the kernels call, declared here as TensorFlow declares them
// (kernels.h, ops.h, tf_tensor.h, tf_status.h), and looked up in the TensorFlow of the process. One build serves all
// releases.
#include <cstddef>
#include <cstdint>
#include <string>

extern "C" {
struct TF_Status;
struct TF_Tensor;
struct TF_OpDefinitionBuilder;
struct TF_ShapeInferenceContext;
struct TF_ShapeHandle;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_AsyncOpKernelDoneCallback;
}

namespace hvd::tensorflow {

// The values that TensorFlow gives them.
enum Code : int {
  code_ok = 0,
  code_unknown = 2,
  code_invalid_argument = 3,
  code_resource_exhausted = 8,
  code_failed_precondition = 9,
  code_aborted = 10
};
enum Type : int {
  type_float = 1,
  type_double = 2,
  type_int32 = 3,
  type_uint8 = 4,
  type_int16 = 5,
  type_int8 = 6,
  type_int64 = 9,
  type_bool = 10,
  type_bfloat16 = 14,
  type_uint16 = 17,
  type_half = 19
};

using ShapeFunction = void (*)(TF_ShapeInferenceContext*, TF_Status*);
using Create = void* (*)(TF_OpKernelConstruction*);
using Delete = void (*)(void*);
using Compute = void (*)(void*, TF_OpKernelContext*);
using Deallocate = void (*)(void* data, std::size_t bytes, void* argument);
using ComputeAsync = void (*)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);

// FUNCTION(result, name without TF_, parameters)
#define HVD_TENSORFLOW_FUNCTIONS(FUNCTION)                                                                        \
  FUNCTION(TF_Status*, NewStatus, ())                                                                             \
  FUNCTION(void, DeleteStatus, (TF_Status*))                                                                      \
  FUNCTION(void, SetStatus, (TF_Status*, int, const char*))                                                       \
  FUNCTION(int, GetCode, (const TF_Status*))                                                                      \
  FUNCTION(const char*, Message, (const TF_Status*))                                                              \
  FUNCTION(TF_Tensor*, NewTensor, (int, const std::int64_t*, int, void*, std::size_t, Deallocate, void*))         \
  FUNCTION(void, DeleteTensor, (TF_Tensor*))                                                                      \
  FUNCTION(int, TensorType, (const TF_Tensor*))                                                                   \
  FUNCTION(int, NumDims, (const TF_Tensor*))                                                                      \
  FUNCTION(std::int64_t, Dim, (const TF_Tensor*, int))                                                            \
  FUNCTION(std::int64_t, TensorElementCount, (const TF_Tensor*))                                                  \
  FUNCTION(std::size_t, TensorByteSize, (const TF_Tensor*))                                                       \
  FUNCTION(void*, TensorData, (const TF_Tensor*))                                                                 \
  FUNCTION(TF_OpDefinitionBuilder*, NewOpDefinitionBuilder, (const char*))                                        \
  FUNCTION(void, RegisterOpDefinition, (TF_OpDefinitionBuilder*, TF_Status*))                                     \
  FUNCTION(void, OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder*, const char*))                              \
  FUNCTION(void, OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder*, const char*))                             \
  FUNCTION(void, OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder*, const char*))                            \
  FUNCTION(void, OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder*, bool))                               \
  FUNCTION(void, OpDefinitionBuilderSetShapeInferenceFunction, (TF_OpDefinitionBuilder*, ShapeFunction))          \
  FUNCTION(std::int64_t, ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext*))                             \
  FUNCTION(TF_ShapeHandle*, NewShapeHandle, ())                                                                   \
  FUNCTION(void, DeleteShapeHandle, (TF_ShapeHandle*))                                                            \
  FUNCTION(void, ShapeInferenceContextGetInput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))    \
  FUNCTION(void, ShapeInferenceContextSetOutput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))   \
  FUNCTION(TF_ShapeHandle*, ShapeInferenceContextScalar, (TF_ShapeInferenceContext*))                             \
  FUNCTION(TF_ShapeHandle*, ShapeInferenceContextVectorFromSize, (TF_ShapeInferenceContext*, std::size_t))        \
  FUNCTION(int, ShapeInferenceContextRankKnown, (TF_ShapeInferenceContext*, TF_ShapeHandle*))                     \
  FUNCTION(void, ShapeInferenceContextWithRankAtLeast,                                                            \
           (TF_ShapeInferenceContext*, TF_ShapeHandle*, std::int64_t, TF_ShapeHandle*, TF_Status*))               \
  FUNCTION(void, ShapeInferenceContextSubshape,                                                                   \
           (TF_ShapeInferenceContext*, TF_ShapeHandle*, std::int64_t, std::int64_t, TF_ShapeHandle*, TF_Status*)) \
  FUNCTION(void, ShapeInferenceContextConcatenateShapes,                                                          \
           (TF_ShapeInferenceContext*, TF_ShapeHandle*, TF_ShapeHandle*, TF_ShapeHandle*, TF_Status*))            \
  FUNCTION(TF_KernelBuilder*, NewKernelBuilder, (const char*, const char*, Create, Compute, Delete))              \
  FUNCTION(TF_KernelBuilder*, NewAsyncKernelBuilder, (const char*, const char*, Create, ComputeAsync, Delete))    \
  FUNCTION(void, KernelBuilder_HostMemory, (TF_KernelBuilder*, const char*))                                      \
  FUNCTION(void, KernelBuilder_Priority, (TF_KernelBuilder*, std::int32_t))                                       \
  FUNCTION(void, RegisterKernelBuilder, (const char*, TF_KernelBuilder*, TF_Status*))                             \
  FUNCTION(void, RunAsyncOpKernelDoneCallback, (TF_AsyncOpKernelDoneCallback*))                                   \
  FUNCTION(int, NumInputs, (TF_OpKernelContext*))                                                                 \
  FUNCTION(void, GetInput, (TF_OpKernelContext*, int, TF_Tensor**, TF_Status*))                                   \
  FUNCTION(void, SetOutput, (TF_OpKernelContext*, int, const TF_Tensor*, TF_Status*))                             \
  FUNCTION(void, OpKernelContext_Failure, (TF_OpKernelContext*, TF_Status*))                                      \
  FUNCTION(TF_Tensor*, AllocateOutput,                                                                            \
           (TF_OpKernelContext*, int, int, const std::int64_t*, int, std::size_t, TF_Status*))                    \
  FUNCTION(void, OpKernelConstruction_Failure, (TF_OpKernelConstruction*, TF_Status*))                            \
  FUNCTION(bool, OpKernelConstruction_HasAttr, (TF_OpKernelConstruction*, const char*, TF_Status*))               \
  FUNCTION(void, OpKernelConstruction_GetAttrSize,                                                                \
           (TF_OpKernelConstruction*, const char*, std::int32_t*, std::int32_t*, TF_Status*))                     \
  FUNCTION(void, OpKernelConstruction_GetAttrInt32,                                                               \
           (TF_OpKernelConstruction*, const char*, std::int32_t*, TF_Status*))                                    \
  FUNCTION(void, OpKernelConstruction_GetAttrFloat, (TF_OpKernelConstruction*, const char*, float*, TF_Status*))  \
  FUNCTION(void, OpKernelConstruction_GetAttrString,                                                              \
           (TF_OpKernelConstruction*, const char*, char*, std::size_t, TF_Status*))

// nullptr where a release lacks one of them.
#define HVD_TENSORFLOW_OPTIONAL_FUNCTIONS(FUNCTION)          \
  FUNCTION(std::uint64_t, GetFrameId, (TF_OpKernelContext*)) \
  FUNCTION(std::int64_t, GetIterId, (TF_OpKernelContext*))

struct Functions {
#define HVD_FUNCTION(result, name, parameters) result(*name) parameters = nullptr;
  HVD_TENSORFLOW_FUNCTIONS(HVD_FUNCTION)
  HVD_TENSORFLOW_OPTIONAL_FUNCTIONS(HVD_FUNCTION)
#undef HVD_FUNCTION
};

// What find_functions() has found.
extern Functions tf;

// Looks the functions up in the libraries of TensorFlow that are loaded. Returns what is wrong; empty if all are there.
std::string find_functions();

// A status of TensorFlow's.
class Status {
 public:
  Status() : status_(tf.NewStatus()) {}
  Status(Code code, const std::string& message) : Status() { tf.SetStatus(status_, code, message.c_str()); }
  ~Status() { tf.DeleteStatus(status_); }
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;

  TF_Status* get() const noexcept { return status_; }
  bool ok() const { return tf.GetCode(status_) == code_ok; }
  std::string message() const { return tf.Message(status_); }

 private:
  TF_Status* status_;
};

}  // namespace hvd::tensorflow
