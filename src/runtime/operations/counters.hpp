#pragma once
// The counters of hvd_counter(). The engine writes them, any thread may read them.
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
  std::atomic<std::int64_t> value_{0};  // only one thread writes, so a plain load and store is enough
};

struct Counters {
  Counter submissions;    // operations that callers submitted
  Counter requests_sent;  // ballots and other messages that carry strings
  Counter log_records;    // number of records of the log that were read
  Counter log_bytes;      // number of bytes of the log that were read
  Counter batches;        // number of batches that were run
  Counter plans;          // tasks planned; restarts are not counted
  Counter links;          // links that this rank has made with others
  Counter engine_sleeps;  // how often the engine's thread went to sleep
  // Messages of the agreement between nodes. Only the leader of a node has any.
  Counter frames_sent;
  Counter frames_received;
  Counter frame_bytes_sent;  // bytes of the frames, including the bytes of their lengths
  Counter frame_bytes_received;
};

}  // namespace hvd::runtime
