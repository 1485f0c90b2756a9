#pragma once
// Owners of what the driver hands out. They may go on any thread, and after the driver itself.
#include <utility>

#include "native/cuda/context.hpp"
#include "native/posix/memory/near_memory.hpp"

namespace hvd::cuda {

// `destroy` is the member of Driver that gives the handle back.
template <typename Handle, auto destroy>
class Owner {
 public:
  Owner() = default;
  Owner(std::shared_ptr<const Context> context, Handle handle) : context_(std::move(context)), handle_(handle) {}
  Owner(Owner&& other) noexcept
      : context_(std::move(other.context_)), handle_(std::exchange(other.handle_, Handle{})) {}
  Owner& operator=(Owner&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() {
    if (handle_ == Handle{} || is_forked()) return;
    const Context::Use use(*context_);
    static_cast<void>((context_->driver().*destroy)(handle_));
  }

  Handle get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != Handle{}; }

 private:
  std::shared_ptr<const Context> context_;
  Handle handle_{};
};

using OwnStream = Owner<StreamHandle, &Driver::stream_destroy>;
using OwnEvent = Owner<EventHandle, &Driver::event_destroy>;
using OwnModule = Owner<ModuleHandle, &Driver::module_unload>;
using DeviceMemory = Owner<Address, &Driver::memory_free>;
using PageLocked = Owner<void*, &Driver::host_free>;  // at the same address for the device

inline Result<OwnStream> make_stream(const std::shared_ptr<const Context>& context, int priority) {
  const Context::Use use(*context);
  StreamHandle stream = nullptr;
  const Code code = context->driver().stream_create(&stream, stream_non_blocking, priority);
  if (code != Code::success) return context->error(code, "no stream could be made");
  return OwnStream(context, stream);
}

inline Result<OwnEvent> make_event(const std::shared_ptr<const Context>& context) {
  const Context::Use use(*context);
  EventHandle event = nullptr;
  const Code code = context->driver().event_create(&event, event_disable_timing);
  if (code != Code::success) return context->error(code, "no event could be made");
  return OwnEvent(context, event);
}

inline Result<DeviceMemory> make_device_memory(const std::shared_ptr<const Context>& context, std::size_t bytes) {
  const Context::Use use(*context);
  Address address = 0;
  const Code code = context->driver().memory_allocate(&address, bytes);
  if (code == Code::success) return DeviceMemory(context, address);
  std::size_t free = 0, total = 0;
  static_cast<void>(context->driver().memory_info(&free, &total));
  return context->error(code, "no memory for " + std::to_string(bytes) + " bytes (" + std::to_string(free) + " of " +
                                  std::to_string(total) + " bytes are free)");
}

// From this NUMA node if it has any left; -1: from that of the thread. The driver takes memory as the kernel does for
// the thread.
inline Result<PageLocked> make_page_locked(const std::shared_ptr<const Context>& context, std::size_t bytes,
                                           int node = -1) {
  const Context::Use use(*context);
  const posix::NearMemory near(node);
  void* address = nullptr;
  const Code code = context->driver().host_allocate(&address, bytes, host_memory_portable | host_memory_on_device);
  if (code == Code::success) return PageLocked(context, address);
  return context->error(code, "no page-locked memory of the host for " + std::to_string(bytes) +
                                  " bytes (ulimit -l, or the memory limit of the job)");
}

}  // namespace hvd::cuda
