#pragma once
// The layout of the memory that the seats of one link share, and this process's pointers into it. All offsets follow
// from the shape, which is equal on all seats. The memory itself never contains pointers.
//
//  per seat   flags, each alone on a pair of cache lines (prefetchers fetch pairs)
//             two small slots: sequence number and a short payload on one line pair, a longer payload behind it
//             a slab for chunks of large batches
//  per pair   a ring for messages, and flags for the pieces of an alltoall
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/settings/config.hpp"

namespace hvd::transport::shm {

inline constexpr std::size_t line_pair_bytes = 128;
inline constexpr std::size_t small_slot_bytes = 32 << 10;  // largest batch of a one shot
inline constexpr std::size_t inline_bytes = 120;           // largest payload next to the sequence number

// A number that only grows. One seat writes it, the others read it.
struct alignas(line_pair_bytes) Flag {
  std::atomic<std::uint64_t> value;
};

struct alignas(line_pair_bytes) SmallSlot {
  std::atomic<std::uint64_t> sequence;
  std::byte payload[inline_bytes];
};
static_assert(sizeof(SmallSlot) == line_pair_bytes);

struct SeatFlags {
  Flag attached;  // 1 when this seat has mapped the area
  Flag packed;    // number of chunks that this seat has put into its slab
  Flag pushed;    // number of chunks whose slice this seat has reduced and stored into all slabs
  Flag taken;     // number of chunks that this seat has read from the others' slabs
  Flag consumed;  // number of small slots whose content this seat has read
};

struct alignas(line_pair_bytes) RingHead {
  Flag written;  // bytes that the sender has put in since the start
  Flag read;     // bytes that the receiver has taken out since the start
};

// For an ordered pair of seats: the pieces of alltoalls. They are posted with their numbers, which begin with 1. A
// short piece travels next to its number.
inline constexpr std::size_t pair_places = 2;
struct PairFlags {
  SmallSlot posts[2 * pair_places];  // written by the sender
  Flag taken;                        // number of the last piece that the receiver has read
};

struct SeatArea {
  SeatFlags* flags;
  SmallSlot* small[2];
  std::byte* small_data[2];
  std::byte* slab;
};

struct Shape {
  int seats = 1;
  std::size_t slab_bytes = 0;  // size of the slab of one seat
  std::size_t ring_bytes = 0;  // per ordered pair of seats, a power of two
};
// Slabs are so large that half of one has room for a piece of this size for every seat, however many seats there are.
inline constexpr std::size_t least_piece_bytes = 64;
Shape shape_for(int seats, const Config& config);
std::size_t bytes_needed(const Shape& shape);

class SharedArea {
 public:
  // All bytes of `memory` must be zero when the first seat opens it. It must outlive the area.
  SharedArea(void* memory, const Shape& shape);

  const Shape& shape() const { return shape_; }
  SeatArea& seat(int index) { return seats_[static_cast<std::size_t>(index)]; }
  RingHead* ring_head(int from, int to) const;
  std::byte* ring_data(int from, int to) const;
  PairFlags& pair(int from, int to) const;

 private:
  std::byte* memory_;
  Shape shape_;
  std::vector<SeatArea> seats_;
};

}  // namespace hvd::transport::shm
