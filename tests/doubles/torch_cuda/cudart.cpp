// A double of CUDA's runtime library (libcudart.so.N) over the driver's entry points: what torch's CUDA build calls,
// one to one. Kernels of torch are not run: on_host.py computes them on the host. All else that the real library
// exports is a stand-in that refuses by its own name (stand_ins.py).
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>

namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local std::string why_not_supported;
thread_local int device_of_thread = 0;

cudaError_t note(cudaError_t code) {
  if (code != cudaSuccess && code != cudaErrorNotReady) last_error = code;
  return code;
}
// The driver's codes that the double returns have the same numbers in the runtime.
cudaError_t note(CUresult code) {
  return note(static_cast<cudaError_t>(code));
}

cudaError_t refuse(const std::string& what) {
  why_not_supported = "the double of CUDA has no " + what;
  if (std::getenv("HVD_DOUBLE_TRACE") != nullptr) std::fprintf(stderr, "%s\n", why_not_supported.c_str());
  return note(cudaErrorNotSupported);
}

// The primary context of the thread's device becomes current, as in the runtime library.
void enter() {
  CUdevice now = -1;
  if (cuCtxGetDevice(&now) == CUDA_SUCCESS && now == device_of_thread) return;
  CUcontext context = nullptr;
  if (cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, device_of_thread) == CUDA_SUCCESS)
    cuCtxSetCurrent(context);
}
template <typename Function, typename... Arguments>
cudaError_t call(Function function, Arguments... arguments) {
  enter();
  return note(function(arguments...));
}

CUdeviceptr address(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

std::unordered_map<const void*, std::string>& names_of_kernels() {
  static auto* names = new std::unordered_map<const void*, std::string>;
  return *names;
}
cudaError_t refuse_launch(const void* kernel) {
  const auto found = names_of_kernels().find(kernel);
  return refuse("kernel " + (found == names_of_kernels().end() ? "without a name" : found->second) +
                ": compute its operator on the host (tests/doubles/torch_cuda/on_host.py)");
}

struct Configuration {
  dim3 blocks, threads;
  std::size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};
thread_local Configuration configuration;

}  // namespace

extern "C" {

cudaError_t cuda_double_refuse(const char* name) {
  return refuse(name);
}

// ---- errors, versions, devices

cudaError_t cudaGetLastError() {
  const cudaError_t code = last_error;
  last_error = cudaSuccess;
  return code;
}
cudaError_t cudaPeekAtLastError() {
  return last_error;
}
const char* cudaGetErrorString(cudaError_t code) {
  if (code == cudaErrorNotSupported && !why_not_supported.empty()) return why_not_supported.c_str();
  const char* text = nullptr;
  cuGetErrorString(static_cast<CUresult>(code), &text);
  return text != nullptr ? text : "an error without a text";
}
const char* cudaGetErrorName(cudaError_t code) {
  const char* name = nullptr;
  cuGetErrorName(static_cast<CUresult>(code), &name);
  return name != nullptr ? name : "an error without a name";
}
cudaError_t cudaDriverGetVersion(int* version) {
  return note(cuDriverGetVersion(version));
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  cuInit(0);
  return note(cuDeviceGetCount(count));
}
cudaError_t cudaGetDevice(int* device) {
  *device = device_of_thread;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  CUdevice found = 0;
  cuInit(0);
  if (const CUresult code = cuDeviceGet(&found, device); code != CUDA_SUCCESS) return note(code);
  device_of_thread = device;
  enter();
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return call(cuCtxSynchronize);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int device) {
  return note(cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(what), device));
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  return note(cuDeviceGetPCIBusId(text, bytes, device));
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return note(cuDeviceCanAccessPeer(can, device, peer));
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call(cuCtxGetStreamPriorityRange, least, greatest);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "Double of a GPU");
  std::memset(&properties->uuid, 0xd0 + device, sizeof properties->uuid);
  properties->totalGlobalMem = std::size_t{1} << 30;
  properties->major = 9;
  properties->multiProcessorCount = 3;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = 227 << 10;
  properties->sharedMemPerMultiprocessor = 228 << 10;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->l2CacheSize = 1 << 20;
  for (int i = 0; i < 3; ++i) {
    properties->maxThreadsDim[i] = 1024;
    properties->maxGridSize[i] = i == 0 ? 0x7fffffff : 65535;
  }
  properties->unifiedAddressing = properties->canMapHostMemory = 1;
  properties->pciBusID = 0xa0 + device;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  const CUresult code = cuGetProcAddress(name, function, static_cast<int>(version), 0, nullptr);
  if (found != nullptr)
    *found = code == CUDA_SUCCESS ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

// ---- memory

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  return call(cuMemAlloc, reinterpret_cast<CUdeviceptr*>(pointer), bytes);
}
cudaError_t cudaFree(void* pointer) {
  return call(cuMemFree, address(pointer));
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call(cuMemGetInfo, free, total);
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  return call(cuMemHostAlloc, pointer, bytes, flags);
}
cudaError_t cudaFreeHost(void* pointer) {
  return call(cuMemFreeHost, pointer);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  return call(cuMemcpy, address(to), address(from), bytes);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return call(cuMemcpyAsync, address(to), address(from), bytes, stream);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes, cudaStream_t stream) {
  return call(cuMemcpyAsync, address(to), address(from), bytes, stream);
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return call(cuMemsetD8Async, address(to), static_cast<unsigned char>(value), bytes, stream);
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return call(cuMemsetD8, address(to), static_cast<unsigned char>(value), bytes);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  *attributes = {};
  attributes->type = cudaMemoryTypeUnregistered;
  attributes->device = cudaInvalidDeviceId;
  unsigned type = 0;
  enter();
  if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(pointer)) != CUDA_SUCCESS)
    return cudaSuccess;
  cuPointerGetAttribute(&attributes->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address(pointer));
  attributes->type = type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->devicePointer = const_cast<void*>(pointer);
  if (type != CU_MEMORYTYPE_DEVICE) attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

// ---- streams and events

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return call(cuStreamCreateWithPriority, stream, flags, priority);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call(cuStreamCreate, stream, flags);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return call(cuStreamCreate, stream, 0u);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call(cuStreamDestroy, stream);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call(cuStreamQuery, stream);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call(cuStreamSynchronize, stream);
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return call(cuStreamGetPriority, stream, priority);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return call(cuStreamWaitEvent, stream, event, flags);
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data, unsigned flags) {
  return call(cuStreamAddCallback, stream, reinterpret_cast<CUstreamCallback>(function), data, flags);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return call(cuLaunchHostFunc, stream, function, data);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
#if CUDART_VERSION < 13000
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long*,
                                        cudaGraph_t*, const cudaGraphNode_t**, std::size_t*) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
#else
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long*, cudaGraph_t*,
                                     const cudaGraphNode_t**, const cudaGraphEdgeData**, std::size_t*) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
#endif
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call(cuEventCreate, event, flags);
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return call(cuEventCreate, event, 0u);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call(cuEventDestroy, event);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call(cuEventRecord, event, stream);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return call(cuEventRecord, event, stream);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call(cuEventQuery, event);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call(cuEventSynchronize, event);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return call(cuEventElapsedTime, milliseconds, begin, end);
}

// ---- kernels: what the compiler registers tells the name of each

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) {
  return 0;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  names_of_kernels()[host] = name;
}
unsigned __cudaPushCallConfiguration(dim3 blocks, dim3 threads, std::size_t shared_bytes, cudaStream_t stream) {
  configuration = {blocks, threads, shared_bytes, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* blocks, dim3* threads, std::size_t* shared_bytes, void* stream) {
  *blocks = configuration.blocks;
  *threads = configuration.threads;
  *shared_bytes = configuration.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return refuse_launch(kernel);
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return refuse_launch(kernel);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, std::size_t) {
  *blocks = 2;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, std::size_t,
                                                                   unsigned) {
  *blocks = 2;
  return cudaSuccess;
}

}  // extern "C"
