#pragma once
// Handles, on which callers wait for their submissions. Callers and the engine share only the handles and the inbox.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/bytes.hpp"
#include "base/deadline.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "devices/device.hpp"
#include "native/posix/memory/wait_word.hpp"

namespace hvd::runtime {

struct Operation;

// A result that the runtime keeps until the caller takes or copies it. The runtime keeps results whose size was not
// known beforehand.
struct KeptResult {
  DeviceKind device = DeviceKind::host;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> splits;  // rows that came from each member, by seat
  devices::Memory data;
  std::size_t bytes = 0;
  bool is_of_program = false;  // the program gave the memory and owns it
};

// An operation on a device whose handle may be done before the operation has ended there.
struct EndOnDevice {
  DeviceKind device = DeviceKind::host;
  Stream stream;  // the stream of its start
  Event event;    // the end
  friend bool operator==(const EndOnDevice& a, const EndOnDevice& b) {
    return a.device == b.device && a.stream == b.stream && a.event.token == b.event.token;
  }
};

// One handle. Cells are reused. The generation distinguishes an old handle in the same cell from a new one.
struct HandleCell {
  enum State : std::uint32_t { free, running, done, abandoned };
  std::atomic<std::uint32_t> state{free};
  std::atomic<std::uint32_t> generation{0};
  std::uint32_t place = 0;                 // the lower 32 bits of the handle's number (Handles::Number)
  ProcessSetId set;                        // the process set of the first operation
  bool is_on_device = false;               // the operations' tensors are in device memory
  std::atomic<bool> is_waited_for{false};  // a thread of the program waits, and the engine is told
  // The engine writes these while the handle is running. Callers read them when it is done.
  std::atomic<std::uint32_t> remaining{0};  // operations that have not ended
  bool is_counted_by_two = false;           // also the thread for callbacks counts; written before the start
  std::uint64_t record = 0;                 // the greatest record of the log that decided on an operation of `set`
  std::unique_ptr<Error> error;             // the error of the first operation that failed
  std::vector<KeptResult> results;
  std::vector<EndOnDevice> ends;       // all different; empty if the operations have ended everywhere
  bool is_ordered = false;             // the streams of the starts wait for `ends`; written by callers
  std::vector<Operation*> transients;  // transient operations, which are released together with the handle
};

class Handles {
 public:
  // The number contains generation << 32, and below it the cell's place: runtime << 23 | index + 1. Another runtime
  // does not accept the number.
  using Number = std::uint64_t;

  // How many handles may be held at a time. The number is part of the C API (horovod.h).
  static constexpr std::uint32_t most = 1 << 22;

  // `discard` is called for each transient operation of a handle that is recycled. At most `limit` handles, rounded up
  // to a block, are given out at a time.
  Handles(void (*discard)(void* context, Operation* operation), void* context, std::uint32_t limit = most);

  // ---- callers
  HandleCell* open(std::uint32_t operations);  // null if too many handles are held
  static Number number_of(const HandleCell& cell) {
    return static_cast<Number>(cell.generation.load(std::memory_order_relaxed)) << 32 | cell.place;
  }
  HandleCell* find(Number number);  // null if there is no such handle
  static bool is_done(const HandleCell& cell) { return cell.state.load(std::memory_order_acquire) == HandleCell::done; }
  // Waits until the handle is done. Returns false if the deadline passed first. `spin` is true if the caller's mask has
  // a second core for the engine.
  bool wait(HandleCell& cell, Deadline deadline, bool spin);
  // Recycles the handle. If a device still uses its results, they live until the device has ended; the engine looks for
  // that, and the result is true if it has to be woken for it.
  bool release(HandleCell& cell);
  std::uint32_t runtime() const { return runtime_; }
  std::uint32_t limit() const { return limit_; }

  // ---- the engine
  //
  // How an operation of a handle has ended for the host. The token of an operation that has ended everywhere is 0.
  struct Outcome {
    const Error* error = nullptr;
    ProcessSetId set;
    std::uint64_t record = 0;
    EndOnDevice end;
  };
  // Both are called when one operation of the handle is over: first note(), and after its callback count_down(), which
  // the thread for callbacks calls for those that it has told.
  // announce() wakes the waiters, once for many handles.
  void note(HandleCell& cell, const Outcome& outcome);
  // count_down() is true if the engine has to check whether a device still uses the results.
  bool count_down(HandleCell& cell);
  void announce() { completed_.post(); }
  // True if the handle is done as soon as the callback returns that is told of this operation.
  static bool is_last(const HandleCell& cell) { return cell.remaining.load(std::memory_order_acquire) == 1; }

  // Tells whether an end has come on its device, or will never come because the device has failed.
  using HasCome = std::function<bool(const EndOnDevice&)>;
  // Recycles the released handles whose results no device uses any more.
  bool has_unended() const { return has_unended_.load(std::memory_order_acquire); }
  void recycle_ended(const HasCome& has_come);
  // Called before the handles are destroyed. Results that a device still uses stay allocated: nobody can tell any more
  // when they could be freed.
  void leave_used_results(const HasCome& has_come);

 private:
  static constexpr std::uint32_t cells_per_block = 256;
  static constexpr std::uint32_t most_blocks = most / cells_per_block;

  static constexpr std::uint32_t index_bits = 23;
  static_assert(cells_per_block * most_blocks < 1u << index_bits);

  void recycle(HandleCell& cell);
  // True if the cell has results that a device may still use, in the order of no stream of the program.
  static bool is_in_use(const HandleCell& cell) {
    return !cell.ends.empty() && !cell.is_ordered && !cell.results.empty();
  }
  void keep_until_ended(HandleCell& cell);

  const std::uint32_t limit_;
  const std::uint32_t runtime_;  // number of the runtime in this process; part of every handle number
  void (*discard_)(void*, Operation*);
  void* discard_context_;
  std::mutex mutex_;
  std::array<std::atomic<HandleCell*>, most_blocks> blocks_{};
  std::vector<std::unique_ptr<HandleCell[]>> owned_;
  std::vector<HandleCell*> free_;
  std::vector<HandleCell*> unended_;  // released handles whose results a device may still use
  std::atomic<bool> has_unended_{false};
  posix::WaitWord completed_;
};

}  // namespace hvd::runtime
