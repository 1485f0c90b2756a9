#pragma once
// The driver, loaded by name, and what each question needs of it.
#include <cuda.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace probe {

// clang-format off
#define PROBE_FUNCTIONS(X) \
  X(cuInit) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) \
  X(cuDeviceGetAttribute) X(cuDeviceTotalMem) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) \
  X(cuCtxSynchronize) X(cuMemAlloc) X(cuMemHostAlloc) X(cuMemHostGetDevicePointer) X(cuStreamCreate) \
  X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuStreamWriteValue32) X(cuStreamBeginCapture) \
  X(cuStreamEndCapture) X(cuEventCreate) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) \
  X(cuModuleLoadData) X(cuModuleGetFunction) X(cuLaunchKernel) X(cuGetErrorName)
// clang-format on

#define PROBE_TEXT(name) #name
#define PROBE_NAME(name) PROBE_TEXT(name)

struct Driver {
#define PROBE_MEMBER(name) decltype(&::name) name = nullptr;
  PROBE_FUNCTIONS(PROBE_MEMBER)
#undef PROBE_MEMBER

  // Returns why there is no driver, "" if there is one with at least one GPU.
  std::string load() {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) return std::string("libcuda.so.1 cannot be loaded: ") + ::dlerror();
#define PROBE_FIND(name)                                                  \
  if (void* found = ::dlsym(library, PROBE_NAME(name)); found != nullptr) \
    this->name = reinterpret_cast<decltype(this->name)>(found);           \
  else return "libcuda.so.1 has no " PROBE_NAME(name);
    PROBE_FUNCTIONS(PROBE_FIND)
#undef PROBE_FIND
    int count = 0;
    if (CUresult refused = this->cuInit(0); refused != CUDA_SUCCESS) return "cuInit fails: " + text(refused);
    if (this->cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0) return "the driver shows no device";
    return "";
  }
  std::string text(CUresult result) const {
    const char* name = nullptr;
    return cuGetErrorName(result, &name) == CUDA_SUCCESS ? name : std::to_string(static_cast<int>(result));
  }
  int device_count() const {
    int count = 0;
    cuDeviceGetCount(&count);
    return count;
  }
};

inline Driver& driver() {
  static Driver it;
  return it;
}

// One line of the report.
inline void say(const std::string& name, const std::string& value, const std::string& unit) {
  std::printf("%s %s %s\n", name.c_str(), value.c_str(), unit.c_str());
  std::fflush(stdout);
}
inline void say(const std::string& name, double value, const std::string& unit) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3f", value);
  say(name, std::string(text), unit);
}

// A question that cannot be asked here ends with a line that tells why (one word).
[[noreturn]] inline void skip(const std::string& name, const std::string& why) {
  say(name, "skipped", why);
  std::exit(0);
}
inline void need(CUresult result, const std::string& what) {
  if (result == CUDA_SUCCESS) return;
  say(what, driver().text(result), "error");
  std::exit(0);
}

using Clock = std::chrono::steady_clock;
inline double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}
// The mean time of a call, in microseconds.
template <typename Call>
double time_of(int calls, Call call) {
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) call(i);
  return microseconds_since(begin) / calls;
}

// A GPU with a context, a stream and the kernels.
struct Gpu {
  explicit Gpu(int ordinal = 0) {
    CUdevice device = 0;
    need(driver().cuDeviceGet(&device, ordinal), "gpu.get");
    need(driver().cuDevicePrimaryCtxRetain(&context, device), "gpu.context");
    need(driver().cuCtxSetCurrent(context), "gpu.current");
    need(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "gpu.stream");
  }
  CUfunction function(const char* name) {
    if (module == nullptr) need(load("kernels.ptx"), "gpu.module");
    CUfunction found = nullptr;
    need(driver().cuModuleGetFunction(&found, module, name), name);
    return found;
  }
  // The file lies beside the program.
  CUresult load(const std::string& file) {
    std::ifstream from(folder() + "/" + file);
    if (!from) skip("ptx." + file, "no_such_file");
    std::stringstream text;
    text << from.rdbuf();
    return driver().cuModuleLoadData(&module, text.str().c_str());
  }
  CUresult launch(CUfunction kernel, void** arguments) {
    return driver().cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr);
  }
  CUevent event() {
    CUevent made = nullptr;
    need(driver().cuEventCreate(&made, CU_EVENT_DISABLE_TIMING), "gpu.event");
    return made;
  }
  static std::string folder() {
    const char* here = std::getenv("PROBE_FOLDER");
    return here != nullptr ? here : ".";
  }

  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUmodule module = nullptr;
};

// A word that the host and the GPU see.
struct Word {
  Word() {
    void* memory = nullptr;
    need(driver().cuMemHostAlloc(&memory, 64, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE), "word.memory");
    host = static_cast<volatile unsigned*>(memory);
    *host = 0;
    need(driver().cuMemHostGetDevicePointer(&device, memory, 0), "word.address");
  }
  volatile unsigned* host = nullptr;
  CUdeviceptr device = 0;
};

}  // namespace probe
