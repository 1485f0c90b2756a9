#pragma once
// What the debug interface counts. Written by the engine, read by anybody.
#include <atomic>
#include <cstdint>

namespace hvd::runtime {

class Counter {
 public:
  void add(std::int64_t amount = 1) {
    value_.store(value_.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  std::int64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_{0};  // one writer: no read-modify-write needed
};

struct Counters {
  Counter submissions;    // operations that callers submitted
  Counter requests_sent;  // ballots and other messages that carry strings
  Counter log_records;    // read
  Counter log_bytes;      // read
  Counter batches;        // run
  Counter plans;          // tasks planned; a restarted one is not counted
  Counter engine_sleeps;  // times the engine thread went to sleep
  // Messages of the agreement between nodes, on the leader of a node; the others have none.
  Counter frames_sent;
  Counter frames_received;
  Counter frame_bytes_sent;  // their lengths included
  Counter frame_bytes_received;
};

}  // namespace hvd::runtime
