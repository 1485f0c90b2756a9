#include "transport/shm/shared_area.hpp"

#include <algorithm>
#include <new>

namespace hvd::transport::shm {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t ring_budget_bytes = 32 << 20;
constexpr std::size_t smallest_ring_bytes = 4 << 10;
constexpr std::size_t largest_ring_bytes = 64 << 10;

constexpr std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// The offsets inside a seat's part, counted from the beginning of that part.
constexpr std::size_t small_at(int slot) {
  return sizeof(SeatFlags) + static_cast<std::size_t>(slot) * (sizeof(SmallSlot) + small_slot_bytes);
}
constexpr std::size_t slab_at = round_up(small_at(2), page);
// The distance of two seats' parts. It is not a multiple of a page, so that equal places in two slabs do not compete
// for the same sets of a cache.
std::size_t seat_stride(const Shape& shape) {
  return slab_at + shape.slab_bytes + 5 * line_pair_bytes;
}
std::size_t rings_at(const Shape& shape) {
  return round_up(static_cast<std::size_t>(shape.seats) * seat_stride(shape), page);
}
std::size_t pair_of(const Shape& shape, int from, int to) {
  return static_cast<std::size_t>(from) * static_cast<std::size_t>(shape.seats) + static_cast<std::size_t>(to);
}
std::size_t ring_heads_bytes(const Shape& shape) {
  return pair_of(shape, shape.seats, 0) * sizeof(RingHead);
}
std::size_t pair_flags_at(const Shape& shape) {
  return rings_at(shape) + ring_heads_bytes(shape);
}
std::size_t ring_data_at(const Shape& shape) {
  return round_up(pair_flags_at(shape) + pair_of(shape, shape.seats, 0) * sizeof(PairFlags), page);
}

}  // namespace

Shape shape_for(int seats, const Config& config) {
  Shape shape;
  shape.seats = seats;
  auto chunk = static_cast<std::size_t>(std::clamp<std::int64_t>(config.slab_chunk_bytes, 16 << 10, 64 << 20));
  chunk = std::max(chunk, static_cast<std::size_t>(seats) * least_piece_bytes);
  shape.slab_bytes = 2 * round_up(chunk, page);
  auto pairs = static_cast<std::size_t>(seats) * static_cast<std::size_t>(seats);
  shape.ring_bytes = largest_ring_bytes;
  while (shape.ring_bytes > smallest_ring_bytes && pairs * shape.ring_bytes > ring_budget_bytes) shape.ring_bytes /= 2;
  return shape;
}

std::size_t bytes_needed(const Shape& shape) {
  return ring_data_at(shape) + pair_of(shape, shape.seats, 0) * shape.ring_bytes;
}

SharedArea::SharedArea(void* memory, const Shape& shape) : memory_(static_cast<std::byte*>(memory)), shape_(shape) {
  for (int seat = 0; seat < shape.seats; ++seat) {
    std::byte* at = memory_ + static_cast<std::size_t>(seat) * seat_stride(shape);
    SeatArea area{};
    area.flags = std::launder(reinterpret_cast<SeatFlags*>(at));
    for (int slot = 0; slot < 2; ++slot) {
      area.small[slot] = std::launder(reinterpret_cast<SmallSlot*>(at + small_at(slot)));
      area.small_data[slot] = at + small_at(slot) + sizeof(SmallSlot);
    }
    area.slab = at + slab_at;
    seats_.push_back(area);
  }
}

RingHead* SharedArea::ring_head(int from, int to) const {
  std::byte* at = memory_ + rings_at(shape_) + pair_of(shape_, from, to) * sizeof(RingHead);
  return std::launder(reinterpret_cast<RingHead*>(at));
}

std::byte* SharedArea::ring_data(int from, int to) const {
  return memory_ + ring_data_at(shape_) + pair_of(shape_, from, to) * shape_.ring_bytes;
}

PairFlags& SharedArea::pair(int from, int to) const {
  std::byte* at = memory_ + pair_flags_at(shape_) + pair_of(shape_, from, to) * sizeof(PairFlags);
  return *std::launder(reinterpret_cast<PairFlags*>(at));
}

}  // namespace hvd::transport::shm
