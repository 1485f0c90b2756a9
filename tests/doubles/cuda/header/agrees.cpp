// Compiling this file compares what native/cuda/driver.hpp declares with NVIDIA's own header: the values, and of each
// function how many parameters it has and how large they are.
#define __CUDA_API_VERSION_INTERNAL 1  // names with their versions, as the library exports them
#include <cuda.h>

#include <type_traits>

#include "native/cuda/driver.hpp"

namespace hvd::cuda {
namespace {

template <typename Ours, typename Theirs>
inline constexpr bool are_alike =
    sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>;
template <typename Ours, typename Theirs>
inline constexpr bool agree = false;
template <typename... Ours, typename... Theirs>
inline constexpr bool agree<Code (*)(Ours...), CUresult (*)(Theirs...)> = sizeof...(Ours) == sizeof...(Theirs) && [] {
  if constexpr (sizeof...(Ours) == sizeof...(Theirs)) return (are_alike<Ours, Theirs> && ...);
  return false;
}();

#define HVD_AGREES(member, theirs) \
  static_assert(agree<decltype(Driver::member), decltype(&theirs)>, "the parameters of " #theirs);
HVD_AGREES(init, ::cuInit)
HVD_AGREES(driver_version, ::cuDriverGetVersion)
HVD_AGREES(error_name, ::cuGetErrorName)
HVD_AGREES(error_text, ::cuGetErrorString)
HVD_AGREES(device_count, ::cuDeviceGetCount)
HVD_AGREES(device, ::cuDeviceGet)
HVD_AGREES(device_name, ::cuDeviceGetName)
HVD_AGREES(device_uuid, ::cuDeviceGetUuid_v2)
HVD_AGREES(device_bus_id, ::cuDeviceGetPCIBusId)
HVD_AGREES(device_attribute, ::cuDeviceGetAttribute)
HVD_AGREES(primary_retain, ::cuDevicePrimaryCtxRetain)
HVD_AGREES(primary_release, ::cuDevicePrimaryCtxRelease_v2)
HVD_AGREES(context_current, ::cuCtxGetCurrent)
HVD_AGREES(context_push, ::cuCtxPushCurrent_v2)
HVD_AGREES(context_pop, ::cuCtxPopCurrent_v2)
HVD_AGREES(context_priorities, ::cuCtxGetStreamPriorityRange)
HVD_AGREES(exchange_capture_mode, ::cuThreadExchangeStreamCaptureMode)
HVD_AGREES(stream_create, ::cuStreamCreateWithPriority)
HVD_AGREES(stream_destroy, ::cuStreamDestroy_v2)
HVD_AGREES(stream_synchronize, ::cuStreamSynchronize)
HVD_AGREES(stream_wait, ::cuStreamWaitEvent)
HVD_AGREES(stream_capture_status, ::cuStreamIsCapturing)
HVD_AGREES(stream_context, ::cuStreamGetCtx)
HVD_AGREES(event_create, ::cuEventCreate)
HVD_AGREES(event_destroy, ::cuEventDestroy_v2)
HVD_AGREES(event_record, ::cuEventRecord)
HVD_AGREES(event_query, ::cuEventQuery)
HVD_AGREES(memory_allocate, ::cuMemAlloc_v2)
HVD_AGREES(memory_free, ::cuMemFree_v2)
HVD_AGREES(memory_info, ::cuMemGetInfo_v2)
HVD_AGREES(host_allocate, ::cuMemHostAlloc)
HVD_AGREES(host_free, ::cuMemFreeHost)
HVD_AGREES(host_device_address, ::cuMemHostGetDevicePointer_v2)
HVD_AGREES(copy, ::cuMemcpyAsync)
HVD_AGREES(fill_bytes, ::cuMemsetD8Async)
HVD_AGREES(module_load, ::cuModuleLoadData)
HVD_AGREES(module_unload, ::cuModuleUnload)
HVD_AGREES(module_function, ::cuModuleGetFunction)
HVD_AGREES(launch, ::cuLaunchKernel)
#if CUDA_VERSION >= 12000
HVD_AGREES(stream_id, ::cuStreamGetId)
#endif
HVD_AGREES(write_word, ::cuStreamWriteValue32_v2)

#define HVD_IS(ours, theirs) static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs), #theirs);
HVD_IS(Code::success, CUDA_SUCCESS)
HVD_IS(Code::invalid_value, CUDA_ERROR_INVALID_VALUE)
HVD_IS(Code::out_of_memory, CUDA_ERROR_OUT_OF_MEMORY)
HVD_IS(Code::not_initialized, CUDA_ERROR_NOT_INITIALIZED)
HVD_IS(Code::deinitialized, CUDA_ERROR_DEINITIALIZED)
HVD_IS(Code::stub_library, CUDA_ERROR_STUB_LIBRARY)
HVD_IS(Code::device_unavailable, CUDA_ERROR_DEVICE_UNAVAILABLE)
HVD_IS(Code::no_device, CUDA_ERROR_NO_DEVICE)
HVD_IS(Code::invalid_device, CUDA_ERROR_INVALID_DEVICE)
HVD_IS(Code::invalid_image, CUDA_ERROR_INVALID_IMAGE)
HVD_IS(Code::invalid_context, CUDA_ERROR_INVALID_CONTEXT)
HVD_IS(Code::no_binary_for_gpu, CUDA_ERROR_NO_BINARY_FOR_GPU)
HVD_IS(Code::ecc_uncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE)
HVD_IS(Code::invalid_ptx, CUDA_ERROR_INVALID_PTX)
HVD_IS(Code::nvlink_uncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE)
HVD_IS(Code::jit_compiler_not_found, CUDA_ERROR_JIT_COMPILER_NOT_FOUND)
HVD_IS(Code::unsupported_ptx_version, CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
HVD_IS(Code::jit_compilation_disabled, CUDA_ERROR_JIT_COMPILATION_DISABLED)
HVD_IS(Code::contained, CUDA_ERROR_CONTAINED)
HVD_IS(Code::invalid_handle, CUDA_ERROR_INVALID_HANDLE)
HVD_IS(Code::not_found, CUDA_ERROR_NOT_FOUND)
HVD_IS(Code::not_ready, CUDA_ERROR_NOT_READY)
HVD_IS(Code::illegal_address, CUDA_ERROR_ILLEGAL_ADDRESS)
HVD_IS(Code::launch_timeout, CUDA_ERROR_LAUNCH_TIMEOUT)
HVD_IS(Code::context_is_destroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED)
HVD_IS(Code::hardware_stack_error, CUDA_ERROR_HARDWARE_STACK_ERROR)
HVD_IS(Code::illegal_instruction, CUDA_ERROR_ILLEGAL_INSTRUCTION)
HVD_IS(Code::misaligned_address, CUDA_ERROR_MISALIGNED_ADDRESS)
HVD_IS(Code::invalid_pc, CUDA_ERROR_INVALID_PC)
HVD_IS(Code::launch_failed, CUDA_ERROR_LAUNCH_FAILED)
HVD_IS(Code::not_permitted, CUDA_ERROR_NOT_PERMITTED)
HVD_IS(Code::not_supported, CUDA_ERROR_NOT_SUPPORTED)
HVD_IS(Code::system_not_ready, CUDA_ERROR_SYSTEM_NOT_READY)
HVD_IS(Code::system_driver_mismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)
HVD_IS(Code::mps_connection_failed, CUDA_ERROR_MPS_CONNECTION_FAILED)
HVD_IS(Code::mps_rpc_failure, CUDA_ERROR_MPS_RPC_FAILURE)
HVD_IS(Code::mps_server_not_ready, CUDA_ERROR_MPS_SERVER_NOT_READY)
HVD_IS(Code::mps_max_clients_reached, CUDA_ERROR_MPS_MAX_CLIENTS_REACHED)
HVD_IS(Code::mps_max_connections_reached, CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED)
HVD_IS(Code::mps_client_terminated, CUDA_ERROR_MPS_CLIENT_TERMINATED)
HVD_IS(Code::stream_capture_unsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
HVD_IS(Code::stream_capture_invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
HVD_IS(Code::stream_capture_implicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
HVD_IS(Code::captured_event, CUDA_ERROR_CAPTURED_EVENT)
HVD_IS(Code::unknown, CUDA_ERROR_UNKNOWN)
HVD_IS(Attribute::multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
HVD_IS(Attribute::can_map_host_memory, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)
HVD_IS(Attribute::compute_mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)
HVD_IS(Attribute::unified_addressing, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)
HVD_IS(Attribute::capability_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
HVD_IS(Attribute::capability_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
HVD_IS(ComputeMode::standard, CU_COMPUTEMODE_DEFAULT)
HVD_IS(ComputeMode::prohibited, CU_COMPUTEMODE_PROHIBITED)
HVD_IS(ComputeMode::exclusive_process, CU_COMPUTEMODE_EXCLUSIVE_PROCESS)
HVD_IS(CaptureMode::global, CU_STREAM_CAPTURE_MODE_GLOBAL)
HVD_IS(CaptureMode::thread_local_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
HVD_IS(CaptureMode::relaxed, CU_STREAM_CAPTURE_MODE_RELAXED)
HVD_IS(CaptureStatus::none, CU_STREAM_CAPTURE_STATUS_NONE)
HVD_IS(CaptureStatus::active, CU_STREAM_CAPTURE_STATUS_ACTIVE)
HVD_IS(CaptureStatus::invalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED)
HVD_IS(stream_non_blocking, CU_STREAM_NON_BLOCKING)
HVD_IS(event_blocking_sync, CU_EVENT_BLOCKING_SYNC)
HVD_IS(event_disable_timing, CU_EVENT_DISABLE_TIMING)
HVD_IS(host_memory_portable, CU_MEMHOSTALLOC_PORTABLE)
HVD_IS(host_memory_on_device, CU_MEMHOSTALLOC_DEVICEMAP)
static_assert(sizeof(Uuid) == sizeof(CUuuid) && sizeof(Code) == sizeof(CUresult));

}  // namespace
}  // namespace hvd::cuda
