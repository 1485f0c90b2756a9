#pragma once
// A kind of memory: what can be done with it, and the streams on which it is done. Everything above is written against
// this; no other layer knows CUDA.
//
//  1. Work is queued on a stream and done in its order, later; the calling thread never waits for it. Different streams
//     wait for each other by events alone.
//  2. An event is a point on a stream: there once all that was queued before it is done. It need not be given back: one
//     that is there is the past, and its token may stand for nothing else than that.
//  3. Work that fails fails everything that is queued on the device after it: events that are not there yet never will
//     be, and query() says why. What has failed touches no memory any more.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/collective.hpp"
#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/tensor_view.hpp"
#include "devices/host/host_kernels.hpp"
#include "native/posix/wait_word.hpp"

namespace hvd::devices {

// Memory that its owner gives back: on any thread, at any time, also when the device is gone.
class Memory {
 public:
  using Free = void (*)(void* owner);
  Memory() = default;
  Memory(void* data, void* owner, Free free_owner) : data_(data), owner_(owner), free_(free_owner) {}
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    Memory(std::move(other)).swap(*this);
    return *this;
  }
  ~Memory() {
    if (free_ != nullptr) free_(owner_);
  }

  std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }
  explicit operator bool() const noexcept { return data_ != nullptr; }

  // Hands the ownership over: whoever has these calls free_owner(owner).
  struct Parts {
    void* data;
    void* owner;
    Free free_owner;
  };
  Parts release() noexcept { return {std::exchange(data_, nullptr), owner_, std::exchange(free_, nullptr)}; }

 private:
  void swap(Memory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(owner_, other.owner_);
    std::swap(free_, other.free_);
  }
  void* data_ = nullptr;
  void* owner_ = nullptr;
  Free free_ = nullptr;
};

enum class Where : std::uint8_t {
  on_device,
  on_host,  // that the device copies from and to while the host does something else
};

struct Reduction {
  DataType dtype = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  Scale scale;
};

// Any thread may call any of it.
class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  DeviceKind kind() const noexcept { return kind_; }
  int ordinal() const noexcept { return ordinal_; }  // among the devices of its kind, as programs count them

  // From a pool. What is given back is handed out again once `user` has done what was queued on it by then; memory that
  // no stream uses (null) at once. Never null, also for no bytes.
  virtual Result<Memory> allocate(std::size_t bytes, Where where, Stream user) = 0;
  // A stream of the caller's own; it goes back with its last owner.
  virtual Result<std::shared_ptr<void>> stream() = 0;

  // Queued on the stream. Either side may be memory of the device, of allocate(), or any memory of the host: then it is
  // as slow as the device's library makes it.
  virtual Status copy(Stream stream, void* to, const void* from, std::size_t bytes) = 0;
  // As reduce_kernel() computes it, in memory of the device. The lists are read during the call.
  virtual Status reduce(Stream stream, std::span<const void* const> sources, std::span<void* const> destinations,
                        std::int64_t count, const Reduction& reduction) = 0;

  virtual Result<Event> record(Stream stream) = 0;
  // What is queued on the stream from now on comes after the event.
  virtual Status wait(Stream stream, Event event) = 0;
  // Whether the event is there. If not, the word is posted once it is, or the device has failed: this one in place of
  // the one that an earlier call gave (see nobody()); null leaves that as it is.
  virtual Result<bool> query(Event event, posix::WaitWord* wake) = 0;

 protected:
  Device(DeviceKind kind, int ordinal) : kind_(kind), ordinal_(ordinal) {}

 private:
  const DeviceKind kind_;
  const int ordinal_;
};

// A word that nobody sleeps on. Who gives it to query() takes back his own, which may go then.
inline posix::WaitWord& nobody() noexcept {
  static posix::WaitWord word;
  return word;
}

// Blocks until the stream has done what is queued on it, or the device has failed.
inline void finish(Device& device, Stream stream) {
  auto end = device.record(stream);
  if (!end) return;
  for (Naps naps;; naps.take()) {
    auto is_there = device.query(*end, nullptr);
    if (!is_there || *is_there) return;
  }
}

}  // namespace hvd::devices
