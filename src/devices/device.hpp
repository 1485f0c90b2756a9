#pragma once
// A kind of memory: the operations on it, and the streams on which they run. All other layers use this interface and do
// not know CUDA.
//
//  1. Work is queued on a stream. It runs later, in the order of the queue, and the calling thread never waits for it.
//     Different streams wait for each other only by events.
//  2. An event is a point on a stream. It has come when all work queued before it is done. It need not be given back.
//     After it has come, its token may be reused only for other events that have come.
//  3. If work fails, all work queued on the device later fails too. Events that have not come yet will never come, and
//     query() gives the reason. Failed work touches no memory any more.
//  4. Work that was aborted because a peer is lost ends, and its events come (transport::Link::abort). So an event that
//     has come after an abort does not tell that the results are right.
//  5. No call waits for the device's library, not even query() while that library hangs: the engine's thread makes
//     these calls. At the end of a job they are made on a thread of their own nevertheless (runtime/lanes/last_calls).
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/tensor_view.hpp"
#include "devices/moves.hpp"
#include "native/posix/memory/wait_word.hpp"

namespace hvd::devices {

// Memory with an owner. The owner may give it back on any thread and at any time, even when the device is gone.
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

  // Passes the ownership to the caller, who must then call free_owner(owner).
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
  on_host,  // host memory that the device can read and write while the host does other work
};

// Any thread may call these functions.
class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  DeviceKind kind() const noexcept { return kind_; }
  // The library to which this device's streams belong, "cuda". A transport that gives a stream to a library of its own
  // needs one of that kind.
  virtual const char* library() const noexcept { return name_of(kind_); }
  // Returns the device's number among the devices of its kind, as programs count them; -1 until it is opened.
  int ordinal() const noexcept { return ordinal_.load(std::memory_order_acquire); }
  // A device may be made without a call of its library, as devices of the registry are, because a program may never use
  // it, or may choose another ordinal later (torch.cuda.set_device). open() then makes the context that all other
  // functions need. It is called once, for the first tensor, and may take a second.
  Status open(int ordinal) {
    HVD_RETURN_IF_ERROR(open_library(ordinal));
    ordinal_.store(ordinal, std::memory_order_release);
    return {};
  }

  // Allocates memory from a pool. Memory that was given back is used again when `user` has done all work that was
  // queued on it before that. With a null `user`, memory is used again at once. The result is never null, also for zero
  // bytes.
  virtual Result<Memory> allocate(std::size_t bytes, Where where, Stream user) = 0;
  // Makes a stream for the caller alone. It ends with its last owner.
  virtual Result<std::shared_ptr<void>> stream() = 0;

  // Queues the moves of a list as one piece of work. Each side may be memory of the device or of allocate(), so this is
  // also the way between the host and the device. The list is read during the call. An impossible treatment is refused
  // (is_possible()).
  virtual Status move(Stream stream, std::span<const Move> moves, const Treatment& treatment) = 0;

  // Refuses, by name, a stream of another device. This and wait() so refuse one that is being captured into a graph of
  // the program: replays of the graph would be launches of which no other rank knows.
  virtual Result<Event> record(Stream stream) = 0;
  // Work that is queued on the stream after this call runs after the event.
  virtual Status wait(Stream stream, Event event) = 0;
  // Returns true if the event has come. If not, `wake` is posted when it comes or when the device fails. `wake`
  // replaces the word of an earlier call (see nobody()); with null, the earlier word stays.
  virtual Result<bool> query(Event event, posix::WaitWord* wake) = 0;

 protected:
  // With ordinal -1 the device has to be opened.
  Device(DeviceKind kind, int ordinal) : kind_(kind), ordinal_(ordinal) {}
  virtual Status open_library(int /*ordinal*/) { return {}; }

 private:
  const DeviceKind kind_;
  std::atomic<int> ordinal_;
};

// Returns the words for a device in messages, such as "cuda device 0".
inline std::string describe(DeviceKind kind, int ordinal) {
  return std::string(name_of(kind)) + " device " + std::to_string(ordinal);
}
inline std::string describe(const Device& device) {
  return describe(device.kind(), device.ordinal());
}

// A wait word on which no thread sleeps. A caller that passes this word to query() removes its own word, which may then
// be destroyed.
inline posix::WaitWord& nobody() noexcept {
  static posix::WaitWord word;
  return word;
}

// Blocks until the stream has done its queued work or the device has failed.
inline void finish(Device& device, Stream stream) {
  auto end = device.record(stream);
  if (!end) return;
  for (Naps naps;; naps.take()) {
    auto is_there = device.query(*end, nullptr);
    if (!is_there || *is_there) return;
  }
}

}  // namespace hvd::devices
