// Entry points that our plugin does not use: the runtime library of CUDA, over which torch runs, needs them
// (tests/doubles/torch_cuda).
#include <dlfcn.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>

#include "control.h"
#include "state.hpp"

extern "C" {
hvd::cuda::Code cuMemcpyAsync(hvd::cuda::Address to, hvd::cuda::Address from, std::size_t bytes,
                              hvd::cuda::StreamHandle stream);
hvd::cuda::Code cuMemsetD8Async(hvd::cuda::Address to, unsigned char value, std::size_t bytes,
                                hvd::cuda::StreamHandle stream);
hvd::cuda::Code cuEventRecord(hvd::cuda::EventHandle event, hvd::cuda::StreamHandle stream);
hvd::cuda::Code cuStreamSynchronize(hvd::cuda::StreamHandle stream);
}

namespace hvd::doubles {
namespace {

enum class PointerAttribute : int { context = 1, memory_type = 2, device_pointer = 3, host_pointer = 4, ordinal = 9 };
constexpr unsigned type_host = 1, type_device = 2;

// The allocation in which the address lies.
const Double::Allocation* allocation_at(Address address) {
  auto& all = Double::it().allocations;
  auto next = all.upper_bound(address);
  if (next == all.begin()) return nullptr;
  const auto& [begin, allocation] = *std::prev(next);
  return address < begin + allocation.holding.bytes() ? &allocation : nullptr;
}

// Tells a thread when work has ended, or was dropped since the device has failed.
struct Arrival {
  std::mutex mutex;
  std::condition_variable news;
  bool is_over = false, is_right = false;
};
class Herald {
 public:
  explicit Herald(std::shared_ptr<Arrival> arrival) : arrival_(std::move(arrival)) {}
  ~Herald() {
    std::lock_guard lock(arrival_->mutex);
    arrival_->is_over = true;
    arrival_->news.notify_all();
  }
  Herald(const Herald&) = delete;
  Herald& operator=(const Herald&) = delete;

 private:
  const std::shared_ptr<Arrival> arrival_;
};

Code queue_call(void* stream, std::function<void()> call) {
  Double& it = Double::it();
  const Engine::Stream found = it.stream_of(stream);
  if (found == nullptr) return Code::invalid_handle;
  testing::Work work;
  work.label = "host function";
  work.run = [call = std::move(call)] {
    call();
    return testing::Outcome::done;
  };
  return queue(found, std::move(work));
}

}  // namespace
}  // namespace hvd::doubles

using namespace hvd::cuda;
using hvd::doubles::allocation_at;
using hvd::doubles::Double;
using hvd::doubles::Engine;
using hvd::doubles::PointerAttribute;

HVD_EXPORT int hvd_double_fetch(const hvd_double_copy* copies, std::size_t count, void* stream) {
  Double& it = Double::it();
  const Engine::Stream found = it.stream_of(stream);
  if (found == nullptr) return static_cast<int>(Code::invalid_handle);
  auto arrival = std::make_shared<hvd::doubles::Arrival>();
  hvd::testing::Work work;
  work.label = "emulated kernel";
  std::vector<hvd_double_copy> all(copies, copies + count);
  for (const auto& [to, from, bytes] : all) {
    work.bytes += bytes;
    work.reads.push_back({from, bytes});
  }
  work.run = [arrival, all, herald = std::make_shared<hvd::doubles::Herald>(arrival)] {
    for (const auto& [to, from, bytes] : all) std::memcpy(to, hvd::testing::inner_address(from), bytes);
    arrival->is_right = true;
    return hvd::testing::Outcome::done;
  };
  if (const Code code = hvd::doubles::queue(found, std::move(work)); code != Code::success)
    return static_cast<int>(code);
  std::unique_lock lock(arrival->mutex);
  arrival->news.wait(lock, [&] { return arrival->is_over; });
  return static_cast<int>(arrival->is_right ? Code::success : Code::launch_failed);
}

HVD_EXPORT Code cuDeviceTotalMem_v2(std::size_t* bytes, DeviceNumber) {
  HVD_BEGIN(start);
  *bytes = std::size_t{1} << 30;
  return Code::success;
}
HVD_EXPORT Code cuDeviceCanAccessPeer(int* can, DeviceNumber, DeviceNumber) {
  HVD_BEGIN(start);
  *can = 0;
  return Code::success;
}
HVD_EXPORT Code cuMemcpy(Address to, Address from, std::size_t bytes) {
  HVD_BEGIN(context);
  const Code code = cuMemcpyAsync(to, from, bytes, nullptr);
  return code == Code::success ? cuStreamSynchronize(nullptr) : code;
}
HVD_EXPORT Code cuMemsetD8_v2(Address to, unsigned char value, std::size_t bytes) {
  HVD_BEGIN(context);
  const Code code = cuMemsetD8Async(to, value, bytes, nullptr);
  return code == Code::success ? cuStreamSynchronize(nullptr) : code;
}
HVD_EXPORT Code cuMemHostRegister_v2(void*, std::size_t, unsigned) {
  HVD_BEGIN(context);
  return Code::not_supported;
}
HVD_EXPORT Code cuMemHostUnregister(void*) {
  HVD_BEGIN(context);
  return Code::not_supported;
}
HVD_EXPORT Code cuPointerGetAttribute(void* value, PointerAttribute what, Address address) {
  HVD_BEGIN(start);
  std::lock_guard lock(Double::it().mutex);
  const Double::Allocation* found = allocation_at(address);
  if (found == nullptr) return Code::invalid_value;
  switch (what) {
    case PointerAttribute::context:
      *static_cast<ContextHandle*>(value) = &Double::it().context_of(found->device);
      break;
    case PointerAttribute::memory_type:
      *static_cast<unsigned*>(value) = found->is_on_host ? hvd::doubles::type_host : hvd::doubles::type_device;
      break;
    case PointerAttribute::device_pointer:
    case PointerAttribute::host_pointer: *static_cast<Address*>(value) = address; break;
    case PointerAttribute::ordinal: *static_cast<int*>(value) = found->device; break;
  }
  return Code::success;
}

HVD_EXPORT Code cuStreamGetPriority(StreamHandle, int* priority) {
  HVD_BEGIN(context);
  *priority = 0;
  return Code::success;
}
HVD_EXPORT Code cuStreamGetFlags(StreamHandle, unsigned* flags) {
  HVD_BEGIN(context);
  *flags = stream_non_blocking;
  return Code::success;
}
HVD_EXPORT Code cuLaunchHostFunc(StreamHandle stream, void (*function)(void*), void* data) {
  HVD_BEGIN(context);
  return hvd::doubles::queue_call(stream, [function, data] { function(data); });
}
HVD_EXPORT Code cuStreamAddCallback(StreamHandle stream, void (*function)(StreamHandle, Code, void*), void* data,
                                    unsigned) {
  HVD_BEGIN(context);
  return hvd::doubles::queue_call(stream, [stream, function, data] { function(stream, Code::success, data); });
}
HVD_EXPORT Code cuEventRecordWithFlags(EventHandle event, StreamHandle stream, unsigned) {
  return cuEventRecord(event, stream);
}
// The double has no time.
HVD_EXPORT Code cuEventElapsedTime(float* milliseconds, EventHandle, EventHandle) {
  HVD_BEGIN(context);
  *milliseconds = 1;
  return Code::success;
}

HVD_EXPORT Code cuEventElapsedTime_v2(float* milliseconds, EventHandle begin, EventHandle end) {
  return cuEventElapsedTime(milliseconds, begin, end);
}

HVD_EXPORT Code cuGetProcAddress_v2(const char* name, void** function, int, std::uint64_t, int* found) {
  Dl_info own{};
  ::dladdr(reinterpret_cast<void*>(&cuGetProcAddress_v2), &own);
  void* const library = ::dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  *function = nullptr;
  for (const char* version : {"_v3", "_v2", ""})
    if (*function == nullptr) *function = ::dlsym(library, (std::string(name) + version).c_str());
  if (found != nullptr) *found = *function != nullptr ? 0 : 1;
  return *function != nullptr ? Code::success : Code::not_found;
}
