#pragma once
// The entry points of NVIDIA's driver, found by name at run time. Nothing here needs CUDA's headers: the few types and
// values are declared again (tests/native/cuda_header_test.cpp compares them with cuda.h where that is present).
//
// Only the plugin for GPUs contains this code.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "base/settings/environment.hpp"

namespace hvd::cuda {

enum class Code : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialized = 3,
  deinitialized = 4,
  stub_library = 34,
  device_unavailable = 46,
  no_device = 100,
  invalid_device = 101,
  invalid_image = 200,
  invalid_context = 201,
  no_binary_for_gpu = 209,
  ecc_uncorrectable = 214,
  invalid_ptx = 218,
  nvlink_uncorrectable = 220,
  jit_compiler_not_found = 221,
  unsupported_ptx_version = 222,
  jit_compilation_disabled = 223,
  contained = 226,
  invalid_handle = 400,
  not_found = 500,
  not_ready = 600,
  illegal_address = 700,
  launch_timeout = 702,
  context_is_destroyed = 709,
  hardware_stack_error = 714,
  illegal_instruction = 715,
  misaligned_address = 716,
  invalid_pc = 718,
  launch_failed = 719,
  not_permitted = 800,
  not_supported = 801,
  system_not_ready = 802,
  system_driver_mismatch = 803,
  mps_connection_failed = 805,
  mps_rpc_failure = 806,
  mps_server_not_ready = 807,
  mps_max_clients_reached = 808,
  mps_max_connections_reached = 809,
  mps_client_terminated = 810,
  stream_capture_unsupported = 900,
  stream_capture_invalidated = 901,
  stream_capture_implicit = 906,
  captured_event = 907,
  unknown = 999,
};

using DeviceNumber = int;
using Address = unsigned long long;  // of memory that a device can reach
using ContextHandle = struct ContextOfDriver*;
using StreamHandle = struct StreamOfDriver*;
using EventHandle = struct EventOfDriver*;
using ModuleHandle = struct ModuleOfDriver*;
using FunctionHandle = struct FunctionOfDriver*;
struct Uuid {
  unsigned char bytes[16];
};

enum class Attribute : int {
  multiprocessors = 16,
  can_map_host_memory = 19,
  compute_mode = 20,
  unified_addressing = 41,
  capability_major = 75,
  capability_minor = 76,
};
enum class ComputeMode : int { standard = 0, prohibited = 2, exclusive_process = 3 };
enum class CaptureMode : int { global = 0, thread_local_ = 1, relaxed = 2 };
enum class CaptureStatus : int { none = 0, active = 1, invalidated = 2 };
inline constexpr unsigned stream_non_blocking = 1;
// The default streams of the current context and of the calling thread in it. They have these handles in all contexts.
inline StreamHandle default_stream() noexcept {
  return reinterpret_cast<StreamHandle>(1);
}
inline StreamHandle default_stream_of_thread() noexcept {
  return reinterpret_cast<StreamHandle>(2);
}
inline constexpr unsigned event_blocking_sync = 1, event_disable_timing = 2;
inline constexpr unsigned host_memory_portable = 1, host_memory_on_device = 2;

// CUDA 11.8, as cuDriverGetVersion() writes it: 1000 times the first number plus 10 times the second. The PTX of our
// kernels needs this driver or a later one.
inline constexpr int oldest_driver = 11080;

// One row for each entry point: (member of Driver, the driver's symbol, parameters …). Every driver from the oldest one
// on has the NEEDED ones. An OPTIONAL one may be null.
// clang-format off
#define HVD_CUDA_ENTRY_POINTS(NEEDED, OPTIONAL)                                                        \
  NEEDED(init, "cuInit", unsigned flags)                                                               \
  NEEDED(driver_version, "cuDriverGetVersion", int* version)                                           \
  NEEDED(error_name, "cuGetErrorName", Code code, const char** name)                                   \
  NEEDED(error_text, "cuGetErrorString", Code code, const char** text)                                 \
  NEEDED(device_count, "cuDeviceGetCount", int* count)                                                 \
  NEEDED(device, "cuDeviceGet", DeviceNumber* device, int ordinal)                                     \
  NEEDED(device_name, "cuDeviceGetName", char* name, int bytes, DeviceNumber device)                   \
  NEEDED(device_uuid, "cuDeviceGetUuid_v2", Uuid* uuid, DeviceNumber device)                           \
  NEEDED(device_bus_id, "cuDeviceGetPCIBusId", char* text, int bytes, DeviceNumber device)             \
  NEEDED(device_attribute, "cuDeviceGetAttribute", int* value, Attribute what, DeviceNumber device)    \
  NEEDED(primary_retain, "cuDevicePrimaryCtxRetain", ContextHandle* context, DeviceNumber device)      \
  NEEDED(primary_release, "cuDevicePrimaryCtxRelease_v2", DeviceNumber device)                         \
  NEEDED(context_current, "cuCtxGetCurrent", ContextHandle* context)                                   \
  NEEDED(context_push, "cuCtxPushCurrent_v2", ContextHandle context)                                   \
  NEEDED(context_pop, "cuCtxPopCurrent_v2", ContextHandle* context)                                    \
  NEEDED(context_priorities, "cuCtxGetStreamPriorityRange", int* least, int* greatest)                 \
  NEEDED(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", CaptureMode* mode)                \
  NEEDED(stream_create, "cuStreamCreateWithPriority", StreamHandle* stream, unsigned flags, int priority) \
  NEEDED(stream_destroy, "cuStreamDestroy_v2", StreamHandle stream)                                    \
  NEEDED(stream_synchronize, "cuStreamSynchronize", StreamHandle stream)                               \
  NEEDED(stream_wait, "cuStreamWaitEvent", StreamHandle stream, EventHandle event, unsigned flags)     \
  NEEDED(stream_capture_status, "cuStreamIsCapturing", StreamHandle stream, CaptureStatus* status)     \
  NEEDED(stream_context, "cuStreamGetCtx", StreamHandle stream, ContextHandle* context)                \
  NEEDED(event_create, "cuEventCreate", EventHandle* event, unsigned flags)                            \
  NEEDED(event_destroy, "cuEventDestroy_v2", EventHandle event)                                        \
  NEEDED(event_record, "cuEventRecord", EventHandle event, StreamHandle stream)                        \
  NEEDED(event_query, "cuEventQuery", EventHandle event)                                               \
  NEEDED(memory_allocate, "cuMemAlloc_v2", Address* address, std::size_t bytes)                        \
  NEEDED(memory_free, "cuMemFree_v2", Address address)                                                 \
  NEEDED(memory_info, "cuMemGetInfo_v2", std::size_t* free, std::size_t* total)                        \
  NEEDED(host_allocate, "cuMemHostAlloc", void** address, std::size_t bytes, unsigned flags)           \
  NEEDED(host_free, "cuMemFreeHost", void* address)                                                    \
  NEEDED(host_device_address, "cuMemHostGetDevicePointer_v2", Address* device, void* host, unsigned flags) \
  NEEDED(copy, "cuMemcpyAsync", Address to, Address from, std::size_t bytes, StreamHandle stream)      \
  NEEDED(fill_bytes, "cuMemsetD8Async", Address to, unsigned char value, std::size_t bytes, StreamHandle stream) \
  NEEDED(module_load, "cuModuleLoadData", ModuleHandle* module, const void* image)                     \
  NEEDED(module_unload, "cuModuleUnload", ModuleHandle module)                                         \
  NEEDED(module_function, "cuModuleGetFunction", FunctionHandle* function, ModuleHandle module, const char* name) \
  NEEDED(launch, "cuLaunchKernel", FunctionHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, StreamHandle stream, void** parameters, void** extra) \
  OPTIONAL(stream_id, "cuStreamGetId", StreamHandle stream, unsigned long long* id)                    \
  OPTIONAL(write_word, "cuStreamWriteValue32_v2", StreamHandle stream, Address word, std::uint32_t value, unsigned flags)
// clang-format on

struct Driver {
#define HVD_ENTRY_POINT(member, name, ...) Code (*member)(__VA_ARGS__) = nullptr;
  HVD_CUDA_ENTRY_POINTS(HVD_ENTRY_POINT, HVD_ENTRY_POINT)
#undef HVD_ENTRY_POINT
  std::string path;  // the file of the library
  int version = 0;
};

// Opens a driver and initializes it. The library is never unloaded. The error names what was found and what is needed.
Result<Driver> load_driver(const std::string& name);

// Returns the driver of this process: the file that HOROVOD_CUDA_DRIVER names, else libcuda.so.1. The first call opens
// it; later calls return the result of the first one.
Result<const Driver*> open_driver(const Environment& environment);

// "11.8" for 11080.
std::string driver_version_text(int version);

// True if this process was forked from the one that opened the driver. Then no entry point may be called: the driver
// does not survive a fork.
bool is_forked() noexcept;

}  // namespace hvd::cuda
