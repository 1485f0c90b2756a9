#pragma once
// The queue from the engine to the writer of the timeline: a ring of small records, with one thread at each end and no
// locks. The text of a record is stored in the records behind it.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::runtime {

struct TraceRecord {
  enum class Kind : std::uint8_t {
    operation,    // a place stands for this operation from now on; text: TraceOperation, its dimensions, its name
    way,          // a number stands for this way; text: transport and algorithm, or nothing and the name of a stage
    ready,        // text: the name; value: the process set in the upper half, the rank in the lower one
    submitted,    // value: rows of this call
    agreed,       // the value is the batch
    started,      // the value is the batch, the number is the way
    issued,       // the value is the batch; text: the device, a zero, the name of the first operation
    stage_ended,  // the value is the batch, the number is the way, the place is the part; text: when it began
    ended,        // the value is the batch
    finished,
    failed,   // the text is the error's message
    dropped,  // value: how many uses of operations the queue had no room for
  };
  Kind kind = Kind::operation;
  std::uint8_t number = 0;
  std::uint16_t place = 0;
  std::uint32_t text_bytes = 0;
  std::int64_t time_ns = 0;
  std::uint64_t value = 0;
};
static_assert(sizeof(TraceRecord) == 24);

// The properties of an operation that do not change between its uses.
struct TraceOperation {
  std::int32_t set;
  std::uint8_t verb;
  std::uint8_t dtype;
  std::uint8_t is_transient;
  std::uint8_t dimensions;
};

class TraceQueue {
 public:
  explicit TraceQueue(std::size_t records) : ring_(std::bit_ceil(records)), mask_(ring_.size() - 1) {}

  static std::size_t records_for(std::size_t text_bytes) {
    return 1 + (text_bytes + sizeof(TraceRecord) - 1) / sizeof(TraceRecord);
  }
  std::size_t size() const { return ring_.size(); }

  // For the thread that fills the queue. put() needs room for records_for(text).
  bool has_room(std::size_t records) {
    if (filled_ + records <= taken_seen_ + ring_.size()) return true;
    taken_seen_ = taken_.load(std::memory_order_acquire);
    return filled_ + records <= taken_seen_ + ring_.size();
  }
  void put(TraceRecord record) {
    ring_[filled_ & mask_] = record;
    published_.store(++filled_, std::memory_order_release);
  }
  void put(TraceRecord record, std::string_view text) {
    record.text_bytes = static_cast<std::uint32_t>(text.size());
    ring_[filled_++ & mask_] = record;
    for (; !text.empty(); text.remove_prefix(std::min(text.size(), sizeof(TraceRecord))))
      std::memcpy(static_cast<void*>(&ring_[filled_++ & mask_]), text.data(),
                  std::min(text.size(), sizeof(TraceRecord)));
    published_.store(filled_, std::memory_order_release);
  }

  // For the thread that empties the queue. Returns false if the queue is empty.
  bool take(TraceRecord& record, std::string& text) {
    if (read_ == published_seen_) {
      published_seen_ = published_.load(std::memory_order_acquire);
      if (read_ == published_seen_) return false;
    }
    record = ring_[read_++ & mask_];
    text.resize(record.text_bytes);
    for (std::size_t i = 0; i < text.size(); i += sizeof(TraceRecord))
      std::memcpy(&text[i], &ring_[read_++ & mask_], std::min(text.size() - i, sizeof(TraceRecord)));
    // This word is not written after every record, because the other thread reads it.
    if (read_ - freed_ > ring_.size() / 16 || read_ == published_seen_) {
      freed_ = read_;
      taken_.store(read_, std::memory_order_release);
    }
    return true;
  }

 private:
  std::vector<TraceRecord> ring_;
  std::uint64_t mask_;
  alignas(64) std::uint64_t filled_ = 0;
  std::uint64_t taken_seen_ = 0;
  alignas(64) std::atomic<std::uint64_t> published_{0};
  alignas(64) std::uint64_t read_ = 0;
  std::uint64_t published_seen_ = 0, freed_ = 0;
  alignas(64) std::atomic<std::uint64_t> taken_{0};
};

}  // namespace hvd::runtime
