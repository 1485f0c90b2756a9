#pragma once
// Records in a ring in shared memory. There is one writer, and any number of readers, each with its own cursor.
#include <atomic>
#include <cstdint>
#include <cstring>

#include "base/bytes.hpp"

namespace hvd::control {

// The head of a ring in shared memory. Behind it are `capacity` bytes of data; the capacity is a power of two.
struct alignas(64) RingHead {
  std::atomic<std::uint64_t> written{0};  // number of bytes written since the start; a record before this position is
                                          // visible
};

// A view of a ring, which is cheap to copy. A record is [u32 size][payload], padded to 8 bytes. A `skip` record fills
// the rest up to the ring's end.
class ByteRing {
 public:
  ByteRing() = default;
  ByteRing(RingHead* head, std::byte* data, std::uint64_t capacity) : head_(head), data_(data), capacity_(capacity) {}

  std::uint64_t largest_record() const { return capacity_ / 4; }
  std::uint64_t written() const { return head_->written.load(std::memory_order_acquire); }

  // Returns false if the slowest reader has not left enough room.
  bool write(ConstBytes record, std::uint64_t slowest_reader) {
    std::uint64_t at = head_->written.load(std::memory_order_relaxed);
    std::uint64_t need = padded(record.size());
    std::uint64_t until_end = capacity_ - (at & (capacity_ - 1));
    std::uint64_t total = need <= until_end ? need : until_end + need;
    if (at - slowest_reader + total > capacity_) return false;
    if (need > until_end) {
      store_size(at, skip);
      at += until_end;
    }
    store_size(at, static_cast<std::uint32_t>(record.size()));
    if (!record.empty())
      std::memcpy(data_ + (at & (capacity_ - 1)) + sizeof(std::uint32_t), record.data(), record.size());
    head_->written.store(at + need, std::memory_order_release);
    return true;
  }

  // Gives the record at the cursor and moves the cursor past it. The bytes stay valid until the reader publishes its
  // position to the writer.
  bool read(std::uint64_t& cursor, ConstBytes& record) const {
    if (cursor == written()) return false;
    std::uint32_t size = load_size(cursor);
    if (size == skip) {
      cursor += capacity_ - (cursor & (capacity_ - 1));
      size = load_size(cursor);
    }
    record = {data_ + (cursor & (capacity_ - 1)) + sizeof(std::uint32_t), size};
    cursor += padded(size);
    return true;
  }

 private:
  static constexpr std::uint32_t skip = 0xffffffff;
  static std::uint64_t padded(std::uint64_t size) { return (size + sizeof(std::uint32_t) + 7) & ~std::uint64_t{7}; }
  void store_size(std::uint64_t at, std::uint32_t size) {
    std::memcpy(data_ + (at & (capacity_ - 1)), &size, sizeof size);
  }
  std::uint32_t load_size(std::uint64_t at) const {
    std::uint32_t size = 0;
    std::memcpy(&size, data_ + (at & (capacity_ - 1)), sizeof size);
    return size;
  }

  RingHead* head_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t capacity_ = 0;
};

}  // namespace hvd::control
