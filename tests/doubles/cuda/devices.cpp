// Entry points: the driver, its devices and their contexts.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "state.hpp"

namespace hvd::doubles {
namespace {

struct Name {
  Code code;
  const char *name, *text;
};
constexpr Name names[] = {
    {Code::success, "CUDA_SUCCESS", "no error"},
    {Code::invalid_value, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {Code::out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {Code::not_initialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {Code::deinitialized, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {Code::device_unavailable, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {Code::no_device, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {Code::invalid_device, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {Code::invalid_image, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {Code::invalid_context, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {Code::no_binary_for_gpu, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution"},
    {Code::ecc_uncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {Code::invalid_handle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {Code::not_found, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {Code::not_ready, "CUDA_ERROR_NOT_READY", "device not ready"},
    {Code::illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {Code::launch_failed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {Code::system_driver_mismatch, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver"},
    {Code::mps_connection_failed, "CUDA_ERROR_MPS_CONNECTION_FAILED", "MPS client failed to connect"},
    {Code::stream_capture_unsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {Code::unknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const Name* name_of(Code code) {
  for (const Name& name : names)
    if (name.code == code) return &name;
  return nullptr;
}

bool is_device(int device) {
  return device >= 0 && device < Double::it().device_count();
}

// The UUID of a part of the first GPU; null: the device is a GPU.
const char* part(int device) {
  std::lock_guard lock(Double::it().mutex);
  const auto found = Double::it().parts.find(device);
  return found != Double::it().parts.end() ? found->second.c_str() : nullptr;
}

}  // namespace
}  // namespace hvd::doubles

using namespace hvd::cuda;
using hvd::doubles::current_contexts;
using hvd::doubles::Double;
using hvd::doubles::is_device;

HVD_EXPORT Code cuInit(unsigned flags) {
  HVD_BEGIN(nothing);
  if (flags != 0) return Code::invalid_value;
  if (Double::it().device_count() == 0) return Code::no_device;
  Double::it().is_started = true;
  return Code::success;
}
HVD_EXPORT Code cuDriverGetVersion(int* version) {
  HVD_BEGIN(nothing);
  *version = Double::it().version;
  return Code::success;
}
HVD_EXPORT Code cuGetErrorName(Code code, const char** name) {
  const auto* found = hvd::doubles::name_of(code);
  *name = found != nullptr ? found->name : nullptr;
  return found != nullptr ? Code::success : Code::invalid_value;
}
HVD_EXPORT Code cuGetErrorString(Code code, const char** text) {
  const auto* found = hvd::doubles::name_of(code);
  *text = found != nullptr ? found->text : nullptr;
  return found != nullptr ? Code::success : Code::invalid_value;
}

HVD_EXPORT Code cuDeviceGetCount(int* count) {
  HVD_BEGIN(start);
  *count = Double::it().device_count();
  return Code::success;
}
HVD_EXPORT Code cuDeviceGet(DeviceNumber* device, int ordinal) {
  HVD_BEGIN(start);
  if (!is_device(ordinal)) return Code::invalid_device;
  *device = ordinal;
  return Code::success;
}
HVD_EXPORT Code cuDeviceGetName(char* name, int bytes, DeviceNumber device) {
  HVD_BEGIN(start);
  if (!is_device(device)) return Code::invalid_device;
  const bool is_part = hvd::doubles::part(device) != nullptr;
  std::snprintf(name, static_cast<std::size_t>(bytes), "Double of a GPU%s", is_part ? " MIG 1g.10gb" : "");
  return Code::success;
}
HVD_EXPORT Code cuDeviceGetUuid_v2(Uuid* uuid, DeviceNumber device) {
  HVD_BEGIN(start);
  if (!is_device(device)) return Code::invalid_device;
  std::memset(uuid->bytes, 0xd0, sizeof uuid->bytes);
  uuid->bytes[15] = static_cast<unsigned char>(device);
  if (const char* text = hvd::doubles::part(device); text != nullptr) {
    std::size_t digits = 0;
    for (const char* at = text + std::strlen("MIG-"); *at != '\0' && digits < 2 * sizeof uuid->bytes; ++at) {
      if (*at == '-') continue;
      const int digit = *at <= '9' ? *at - '0' : *at - 'a' + 10;
      unsigned char& byte = uuid->bytes[digits++ / 2];
      byte = static_cast<unsigned char>(byte << 4 | digit);
    }
  }
  return Code::success;
}
HVD_EXPORT Code cuDeviceGetPCIBusId(char* text, int bytes, DeviceNumber device) {
  HVD_BEGIN(start);
  if (!is_device(device)) return Code::invalid_device;
  const int whole = hvd::doubles::part(device) != nullptr ? 0 : device;
  std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02X:00.0", 0xa0 + whole);
  return Code::success;
}
HVD_EXPORT Code cuDeviceGetAttribute(int* value, Attribute what, DeviceNumber device) {
  HVD_BEGIN(start);
  if (!is_device(device)) return Code::invalid_device;
  *value = 0;
  switch (what) {
    case Attribute::multiprocessors: *value = 3; break;
    case Attribute::can_map_host_memory:
    case Attribute::unified_addressing: *value = 1; break;
    case Attribute::capability_major: *value = 9; break;
    case Attribute::capability_minor: *value = 0; break;
    case Attribute::compute_mode: {
      std::lock_guard lock(Double::it().mutex);
      *value = Double::it().modes[device].first;
      break;
    }
  }
  return Code::success;
}

HVD_EXPORT Code cuDevicePrimaryCtxRetain(ContextHandle* context, DeviceNumber device) {
  HVD_BEGIN(start);
  if (!is_device(device)) return Code::invalid_device;
  std::lock_guard lock(Double::it().mutex);
  const auto [mode, is_taken] = Double::it().modes[device];
  const bool is_exclusive = mode == static_cast<int>(ComputeMode::exclusive_process) && is_taken;
  if (is_exclusive || mode == static_cast<int>(ComputeMode::prohibited)) return Code::device_unavailable;
  *context = &Double::it().context_of(device);
  ++(*context)->retained;
  return Code::success;
}
HVD_EXPORT Code cuDevicePrimaryCtxRelease_v2(DeviceNumber device) {
  HVD_BEGIN(start);
  if (!is_device(device)) return Code::invalid_device;
  std::lock_guard lock(Double::it().mutex);
  int& retained = Double::it().context_of(device).retained;
  if (retained == 0) return Code::invalid_context;
  --retained;
  return Code::success;
}
HVD_EXPORT Code cuDevicePrimaryCtxGetState(DeviceNumber device, unsigned* flags, int* active) {
  HVD_BEGIN(start);
  if (!is_device(device)) return Code::invalid_device;
  std::lock_guard lock(Double::it().mutex);
  *flags = 0;
  *active = Double::it().context_of(device).retained > 0 ? 1 : 0;
  return Code::success;
}

HVD_EXPORT Code cuCtxGetCurrent(ContextHandle* context) {
  HVD_BEGIN(start);
  *context = current_contexts().empty() ? nullptr : current_contexts().back();
  return Code::success;
}
HVD_EXPORT Code cuCtxSetCurrent(ContextHandle context) {
  HVD_BEGIN(start);
  if (!current_contexts().empty()) current_contexts().pop_back();
  if (context != nullptr) current_contexts().push_back(context);
  return Code::success;
}
HVD_EXPORT Code cuCtxPushCurrent_v2(ContextHandle context) {
  HVD_BEGIN(start);
  {
    std::lock_guard lock(Double::it().mutex);
    if (context == nullptr || context->retained == 0) return Code::invalid_context;
  }
  current_contexts().push_back(context);
  return Code::success;
}
HVD_EXPORT Code cuCtxPopCurrent_v2(ContextHandle* context) {
  HVD_BEGIN(start);
  if (current_contexts().empty()) return Code::invalid_context;
  if (context != nullptr) *context = current_contexts().back();
  current_contexts().pop_back();
  return Code::success;
}
HVD_EXPORT Code cuCtxGetDevice(DeviceNumber* device) {
  HVD_BEGIN(context);
  *device = Double::it().current_device();
  return Code::success;
}
HVD_EXPORT Code cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  HVD_BEGIN(context);
  *least = 0;
  *greatest = -5;
  return Code::success;
}
HVD_EXPORT Code cuCtxSynchronize() {
  HVD_BEGIN(context);
  return Double::it().wait_for_device(Double::it().current_device());
}
