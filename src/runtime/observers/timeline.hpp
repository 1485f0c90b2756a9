#pragma once
// The timeline: records every operation in a file for Perfetto and chrome://tracing.
//
// 1. The engine only puts records of 24 bytes into a queue (trace_queue.hpp). An operation's name is put there once.
// 2. A thread of its own (hvd-timeline) takes the records every 50 ms, or when the queue fills up. It makes events of
//    them (trace_events.hpp) and writes the events (trace_file.hpp).
// 3. Training comes first: if other threads want the core, the writer takes less than 2 % of it.
// 4. If the writer is too slow, the queue has no room. Then whole uses of operations are left out, from submission to
//    end, and one event says how many. If the beginning of a use was recorded, there is room for its end.
// 5. If the file cannot be written any more, there is a warning, and from then on nothing is recorded.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "native/posix/memory/wait_word.hpp"
#include "runtime/observers/observer.hpp"
#include "runtime/observers/trace_events.hpp"
#include "runtime/observers/trace_file.hpp"
#include "runtime/observers/trace_queue.hpp"

namespace hvd::runtime {

class Timeline final : public Observer {
 public:
  struct Settings {
    std::string path;
    TraceHeader header;  // facts for the file's header, without its times
    bool marks_batches = false;
    std::size_t queue_records = 1 << 17;
  };
  // Creates the file with its header and starts the thread. From now on all events are recorded.
  static Result<std::unique_ptr<Timeline>> open(Settings settings);
  // The engine no longer calls the timeline. The destructor writes the remaining records.
  ~Timeline() override;

  void submitted(const Operation& operation) override;
  void ready(ProcessSetId set, std::string_view name, Rank rank) override;
  void agreed(const Operation& operation, Sequence batch) override;
  void stage(Sequence batch, std::string_view what) override;
  void started(Sequence batch, std::string_view transport, std::string_view algorithm) override;
  void issued(Sequence batch, std::string_view device, std::string_view name) override;
  void ended(Sequence batch) override;
  void connecting(Sequence batch, std::string_view transport) override;
  bool wants_stages() const override { return true; }
  void stages_began(Sequence batch, std::string_view device, std::string_view name, Clock::time_point at) override;
  void stage_ended(Sequence batch, const StageOnDevice& stage, Clock::time_point begin, Clock::time_point end) override;
  void finished(const Operation& operation, Sequence batch) override;
  void failed(const Operation& operation, const Error& error) override;

 private:
  // A number of 16 bits by which the writer knows an operation. While the operation is not in use, another operation
  // may get its number.
  struct Place {
    std::uint64_t operation = 0;  // number of the operation at this place + 1; 0: none
    bool is_open = false;         // true between submitted() and the end of a use that is recorded
  };

  Timeline(const Settings& settings, TraceFile file, Clock::time_point start);
  Place& place_of(const Operation& operation) { return places_[operation.number % TraceEvents::places]; }
  static std::uint16_t number_of_place(const Operation& operation);
  bool is_recorded(const Operation& operation);
  // Records that are still to come for what has begun.
  std::size_t reserved() const;
  TraceRecord what_was_dropped();
  void introduce(const Operation& operation);
  std::int64_t since_start(Clock::time_point time) const { return (time - start_).count(); }
  std::int64_t now() const { return since_start(Clock::now()); }
  void begin_activity(Sequence batch, std::string_view transport, std::string_view algorithm);
  int find_way(std::string_view transport, std::string_view algorithm);

  void write();
  bool write_queue();
  void sleep_until(Clock::time_point time, bool or_much_to_do);
  static bool others_want_the_core();
  void give_up(const Error& error);

  const Clock::time_point start_;

  // Used only by the engine's thread:
  TraceQueue queue_;
  std::vector<Place> places_;
  std::size_t open_ = 0;              // number of open places
  std::deque<std::uint64_t> issued_;  // recorded batches that are on a device, whose ends have room in the queue
  std::uint64_t dropped_ = 0;
  std::vector<std::string> ways_;
  std::string text_;
  // The time of a batch's event. The operations of a batch are reported one after the other, and the clock is read only
  // for the first.
  struct Moment {
    std::uint64_t batch = ~std::uint64_t{0};
    std::int64_t time_ns = 0;
  };
  std::int64_t moment_of(Moment& last, Sequence batch);
  Moment agreed_, finished_;

  // Used only by the writer:
  TraceFile file_;
  TraceEvents events_;
  std::atomic<bool> has_failed_{false};
  std::atomic<bool> ends_{false};
  std::atomic<bool> is_to_be_woken_{false};  // set by the writer, which wants to be woken when there is much to do;
                                             // cleared by the engine
  posix::WaitWord wake_;
  std::thread thread_;
};

}  // namespace hvd::runtime
