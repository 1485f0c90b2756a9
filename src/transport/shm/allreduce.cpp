// Allreduce over shared memory. Every element is reduced in the order of the seats. The path, the chunk and the place
// in the batch do not change that order, so the bits of a result are always the same on all seats.
//
// One shot (small batches): every seat puts its data and a sequence number into its slot, and reduces the data of all
// slots. There is no barrier at the end: LinkState describes when a slot may be used again.
//
// Chunks, pushed (large batches). The batch is cut into chunks, and every chunk into one slice per seat. Chunk c uses
// half c mod 2 of the slabs:
//  1. pack: copy the slices that others reduce (all except the own slice) into the own slab; raise `packed` to c + 1.
//  2. reduce, when all have packed c: combine the own tensor with the others' slabs in seat order, scaled. Store the
//     own slice of the result into the own tensor and into all other slabs; raise `pushed` to c + 1.
//  3. unpack, when all have pushed c: copy the other slices from the own slab into the own tensors.
// In place (batches in shared regions): see in_place.hpp. The seats find out in a small exchange whether all of them
// can.
//
// A seat packs c + 1 before it reduces c, so nobody waits for a seat that is slightly late. Chunk c + 2 is packed into
// the same half of the slab only after step 3 of c, when all readers have finished with c. Other seats write only to
// slabs. So when this seat's link is aborted, no peer can change its tensors.
#include <algorithm>

#include "transport/shm/batch.hpp"
#include "transport/shm/in_place.hpp"
#include "transport/shm/tasks.hpp"

namespace hvd::transport::shm {
namespace {

// Up to this size one shot is faster than a chunk, measured on 2 cores with 2 and with 4 ranks. The limit is small,
// because readers keep sharing a slot's cache lines, and each store to a shared line costs a round trip. The lines of a
// pushed chunk move from owner to owner instead. (For the same reason it does not help to fetch the next slot early.)
constexpr std::size_t one_shot_bytes_of_two = 1 << 10;
constexpr std::size_t one_shot_bytes_of_many = 6 << 10;

// Pieces shorter than this are copied together and reduced by one call of the kernel.
constexpr std::size_t short_piece_bytes = 1024;

class Allreduce final : public Task {
 public:
  Allreduce(LinkState& link, const Collective& collective)
      : link_(link),
        reduce_(collective),
        one_shot_bytes_(link.size == 2 ? one_shot_bytes_of_two : one_shot_bytes_of_many),
        turn_(link),
        in_place_(link, reduce_),
        sources_(static_cast<std::size_t>(link.size)),
        destinations_(static_cast<std::size_t>(link.size)) {}

  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence) override {
    batch_.assign_both(in, out);
    turn_.queue();
    phase_ = Phase::queued;
  }

  Progress step() override {
    if (link_.aborted) [[unlikely]]
      return Progress::failed;
    if (phase_ == Phase::queued) {
      int busy = -1;
      if (!turn_.has_come() || !begin(busy)) return turn_.wait_for(busy);
    }
    switch (phase_) {
      case Phase::small: return finish_small();
      case Phase::places: return compare_places();
      case Phase::in_place: return finish_in_place();
      case Phase::chunks: return step_chunks();
      case Phase::idle:
      case Phase::queued:
      case Phase::alone: break;
    }
    phase_ = Phase::idle;
    return turn_.pass();
  }

  void rescale(double prescale, double postscale) override { reduce_.scale = {prescale, postscale}; }
  const Error& failure() const override { return *link_.aborted; }
  Seat waiting_for() const override { return Seat{turn_.waiting_for}; }

 private:
  enum class Phase { idle, queued, small, places, in_place, chunks, alone };
  struct Slice {
    std::size_t begin, end;
  };

  bool begin(int& busy) {
    std::size_t bytes = batch_.bytes();
    if (link_.size == 1 || bytes == 0) {
      reduce_alone();
      phase_ = Phase::alone;
      return true;
    }
    if (bytes <= one_shot_bytes_) {
      if (!link_.small_slot_is_free(busy)) return false;
      exchange_ = ++link_.small_count;
      Cursor(batch_).gather(link_.small_payload(link_.me, exchange_, bytes), bytes);
      link_.post_small(exchange_);
      missing_ = 0;
      phase_ = Phase::small;
      return true;
    }
    if (link_.regions != nullptr && !link_.regions->empty()) return publish_places(busy);
    if (!link_.slab_is_free(busy)) return false;
    begin_chunks();
    phase_ = Phase::chunks;
    return true;
  }

  bool publish_places(int& busy) {
    if (!link_.small_slot_is_free(busy)) return false;
    exchange_ = ++link_.small_count;
    places_ = in_place_.locate(batch_, *link_.regions);
    std::memcpy(link_.small_payload(link_.me, exchange_, sizeof places_), &places_, sizeof places_);
    link_.post_small(exchange_);
    missing_ = 0;
    phase_ = Phase::places;
    return true;
  }

  Progress compare_places() {
    missing_ = link_.missing_small(exchange_, missing_);
    if (missing_ < link_.size) return turn_.wait_for(missing_);
    link_.small_read_by_all = exchange_ - 1;
    bool all_in_place = places_ != 0;
    for (int seat = 0; seat < link_.size; ++seat)
      all_in_place &= std::memcmp(link_.small_payload(seat, exchange_, sizeof places_), &places_, sizeof places_) == 0;
    if (all_in_place) {
      in_place_.begin(*link_.regions);
      phase_ = Phase::in_place;
      return finish_in_place();
    }
    int busy = -1;
    if (!link_.slab_is_free(busy)) return turn_.wait_for(busy);
    begin_chunks();
    phase_ = Phase::chunks;
    return step_chunks();
  }

  Progress finish_in_place() {
    int missing = -1;
    if (!in_place_.step(missing)) return turn_.wait_for(missing);
    phase_ = Phase::idle;
    return turn_.pass();
  }

  void reduce_alone() {
    for (const Piece& piece : batch_.pieces()) {
      if (piece.out == nullptr) continue;
      if (piece.in == nullptr) {
        std::memset(piece.out, 0, piece.bytes);
        continue;
      }
      const void* source = piece.in;
      void* destination = piece.out;
      reduce_(&source, 1, &destination, 1, piece.bytes);
    }
  }

  Progress finish_small() {
    missing_ = link_.missing_small(exchange_, missing_);
    if (missing_ < link_.size) return turn_.wait_for(missing_);
    link_.small_read_by_all = exchange_ - 1;
    std::size_t bytes = batch_.bytes();
    for (int seat = 0; seat < link_.size; ++seat) {
      sources_[static_cast<std::size_t>(seat)] = link_.small_payload(seat, exchange_, bytes);
    }
    const auto& pieces = batch_.pieces();
    if (pieces.size() > 1 && bytes < pieces.size() * short_piece_bytes) reduce_small_together(bytes);
    else reduce_small_apart();
    phase_ = Phase::idle;
    return turn_.pass();
  }

  void reduce_small_apart() {
    auto me = static_cast<std::size_t>(link_.me);
    for (const Piece& piece : batch_.pieces()) {
      const void* packed = sources_[me];
      if (piece.in != nullptr) sources_[me] = piece.in;
      if (piece.out != nullptr) {
        void* destination = piece.out;
        reduce_(sources_.data(), link_.size, &destination, 1, piece.bytes);
      }
      sources_[me] = packed;
      if (&piece == &batch_.pieces().back()) break;
      for (auto& source : sources_) source = static_cast<const std::byte*>(source) + piece.bytes;
    }
  }

  void reduce_small_together(std::size_t bytes) {
    if (scratch_.size() < bytes) scratch_.resize(one_shot_bytes_);
    void* destination = scratch_.data();
    reduce_(sources_.data(), link_.size, &destination, 1, bytes);
    Cursor(batch_).scatter(scratch_.data(), bytes);
  }

  // Every chunk waits twice for the other seats. These waits overlap only if there are several chunks. Measured with 2
  // and with 4 ranks on 2 cores of Intel whose second-level cache holds 2 MB. There 64 KB for the smaller batches were
  // up to 18 % slower, and 128 and 512 KB for the larger ones made no difference. Other processors were not measured.
  static std::size_t chunk_bytes_for(std::size_t total, std::size_t slab_bytes) {
    std::size_t largest = slab_bytes / 2;
    std::size_t wanted = total <= (1u << 20) ? 128u << 10 : 256u << 10;
    return std::min(largest, wanted);
  }

  void begin_chunks() {
    chunk_bytes_ = chunk_bytes_for(batch_.bytes(), link_.area.shape().slab_bytes);
    chunks_ = rounds_of(batch_.bytes(), chunk_bytes_);
    base_ = link_.slab_count;
    link_.slab_count += chunks_;
    packed_ = reduced_ = unpacked_ = 0;
    all_packed_ = all_pushed_ = 0;
    pack_at_ = reduce_at_ = unpack_at_ = Cursor(batch_);
    full_slice_ = cut(chunk_bytes_);
  }

  // Returns this seat's slice of a chunk of this many bytes.
  Slice cut(std::size_t bytes) const {
    auto size = static_cast<std::size_t>(link_.size), me = static_cast<std::size_t>(link_.me);
    std::size_t each = ((bytes + size - 1) / size + 63) & ~std::size_t{63};
    return {std::min(bytes, each * me), std::min(bytes, each * (me + 1))};
  }
  std::size_t bytes_of(std::uint64_t chunk) const {
    return std::min<std::size_t>(chunk_bytes_, batch_.bytes() - chunk * chunk_bytes_);
  }
  Slice slice_of(std::size_t bytes) const { return bytes == chunk_bytes_ ? full_slice_ : cut(bytes); }
  std::size_t half_of(std::uint64_t chunk) const { return (chunk & 1) * chunk_bytes_; }

  // Returns true if every other seat has raised the flag to `done` chunks of this task.
  bool all_have(Flag SeatFlags::*flag, std::uint64_t done, std::uint64_t& known, int& missing) {
    if (known >= done) return true;
    missing = link_.missing(flag, base_ + done, 0);
    if (missing < link_.size) return false;
    known = done;
    return true;
  }

  Progress step_chunks() {
    int missing = -1;
    for (;;) {
      if (packed_ < chunks_ && packed_ < unpacked_ + 2) pack();
      if (reduced_ < packed_ && all_have(&SeatFlags::packed, reduced_ + 1, all_packed_, missing)) reduce();
      if (unpacked_ < reduced_) {
        if (!all_have(&SeatFlags::pushed, unpacked_ + 1, all_pushed_, missing)) return turn_.wait_for(missing);
        unpack();
        if (unpacked_ == chunks_) break;
      } else if (reduced_ == packed_ || all_packed_ <= reduced_) {
        return turn_.wait_for(missing);
      }
    }
    phase_ = Phase::idle;
    return turn_.pass();
  }

  void pack() {
    std::size_t bytes = bytes_of(packed_);
    Slice mine = slice_of(bytes);
    std::byte* slab = link_.area.seat(link_.me).slab + half_of(packed_);
    pack_at_.gather(slab, mine.begin);
    pack_at_.skip(mine.end - mine.begin);
    pack_at_.gather(slab + mine.end, bytes - mine.end);
    ++packed_;
    link_.post.post(link_.area.seat(link_.me).flags->packed.value, base_ + packed_);
  }

  void reduce() {
    std::size_t bytes = bytes_of(reduced_);
    Slice mine = slice_of(bytes);
    std::size_t at = half_of(reduced_) + mine.begin;
    auto me = static_cast<std::size_t>(link_.me);
    reduce_at_.skip(mine.begin);
    reduce_at_.walk(mine.end - mine.begin, [&](std::byte* in, std::byte* out, std::size_t part) {
      int destinations = 0;
      for (int seat = 0; seat < link_.size; ++seat) {
        std::byte* slot = link_.area.seat(seat).slab + at;
        sources_[static_cast<std::size_t>(seat)] = slot;
        if (seat != link_.me) destinations_[static_cast<std::size_t>(destinations++)] = slot;
      }
      if (in != nullptr) sources_[me] = in;
      else std::memset(link_.area.seat(link_.me).slab + at, 0, part);  // only this seat uses this slice
      if (out != nullptr) destinations_[static_cast<std::size_t>(destinations++)] = out;
      reduce_(sources_.data(), link_.size, destinations_.data(), destinations, part);
      at += part;
    });
    reduce_at_.skip(bytes - mine.end);
    ++reduced_;
    link_.post.post(link_.area.seat(link_.me).flags->pushed.value, base_ + reduced_);
  }

  void unpack() {
    std::size_t bytes = bytes_of(unpacked_);
    Slice mine = slice_of(bytes);
    const std::byte* slab = link_.area.seat(link_.me).slab + half_of(unpacked_);
    unpack_at_.scatter(slab, mine.begin);
    unpack_at_.skip(mine.end - mine.begin);
    unpack_at_.scatter(slab + mine.end, bytes - mine.end);
    ++unpacked_;
  }

  LinkState& link_;
  Reduction reduce_;
  const std::size_t one_shot_bytes_;
  Turn turn_;
  InPlace in_place_;
  Phase phase_ = Phase::idle;
  Batch batch_;
  std::vector<const void*> sources_;
  std::vector<void*> destinations_;
  int missing_ = 0;

  std::uint64_t exchange_ = 0;  // number of the exchange for a one shot, or for the digests of places
  std::uint64_t places_ = 0;    // a digest that tells where this seat's tensors of the batch are
  std::vector<std::byte> scratch_;

  std::uint64_t base_ = 0, chunks_ = 0;  // the number of the batch's first chunk, and how many chunks it has
  std::uint64_t packed_ = 0, reduced_ = 0, unpacked_ = 0;
  std::uint64_t all_packed_ = 0, all_pushed_ = 0;
  std::size_t chunk_bytes_ = 0;
  Slice full_slice_{};
  Cursor pack_at_, reduce_at_, unpack_at_;
};

}  // namespace

std::unique_ptr<Task> plan_allreduce(LinkState& link, const Collective& collective) {
  return std::make_unique<Allreduce>(link, collective);
}

}  // namespace hvd::transport::shm
