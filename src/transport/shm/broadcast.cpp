// Broadcast over shared memory.
//
// One shot (small): the root fills its slot and is done. The others copy the data and raise a flag. The root need not
// wait for them: see LinkState. Ring (large): the root's slab is a ring of pieces. The root fills the memory of a piece
// when all others have taken the piece before. The others copy each piece when it is there. The root is done when it
// has filled the last piece; the wait for the others comes before its next use of the slab.
#include <algorithm>

#include "transport/shm/batch.hpp"
#include "transport/shm/tasks.hpp"

namespace hvd::transport::shm {
namespace {

constexpr std::size_t broadcast_piece_bytes = 64 << 10;
constexpr std::size_t deepest_ring = 4;

class Broadcast final : public Task {
 public:
  Broadcast(LinkState& link, const Collective& collective)
      : link_(link),
        turn_(link),
        root_(collective.root.value),
        is_root_(root_ == link.me),
        piece_(std::min(broadcast_piece_bytes, link.area.shape().slab_bytes / 2)),
        depth_(std::min(deepest_ring, link.area.shape().slab_bytes / piece_)) {}

  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence) override {
    if (!is_root_) batch_.assign(out);
    else if (out.empty()) batch_.assign(in);
    else batch_.assign_both(in, out);
    turn_.queue();
    has_begun_ = false;
  }

  Progress step() override {
    if (link_.aborted) [[unlikely]]
      return Progress::failed;
    int busy = -1;
    if (!has_begun_ && (!turn_.has_come() || !begin(busy))) return turn_.wait_for(busy);
    if (batch_.bytes() <= small_slot_bytes) return is_root_ ? turn_.pass() : receive_small();
    return is_root_ ? fill() : copy();
  }

  const Error& failure() const override { return *link_.aborted; }
  Seat waiting_for() const override { return Seat{turn_.waiting_for}; }

 private:
  bool begin(int& busy) {
    std::size_t bytes = batch_.bytes();
    if (is_root_) {
      bool is_free = bytes <= small_slot_bytes ? link_.small_slot_is_free(busy) : link_.slab_is_free(busy);
      if (!is_free) return false;
      keep_own();
    }
    has_begun_ = true;
    if (bytes <= small_slot_bytes) {
      exchange_ = ++link_.small_count;
      if (is_root_) {
        put(Cursor(batch_), link_.small_payload(link_.me, exchange_, bytes), bytes);
        link_.post_small(exchange_);
      }
      return true;
    }
    base_ = link_.slab_count;
    rounds_ = rounds_of(bytes, piece_);
    link_.slab_count += rounds_;
    if (is_root_ && link_.size > 1) link_.slab_awaited = base_ + rounds_;
    round_ = 0;
    at_ = Cursor(batch_);
    return true;
  }

  Cursor put(Cursor from, std::byte* to, std::size_t bytes) const {
    if (link_.has_to_stream(bytes)) from.gather_streaming(to, bytes);
    else from.gather(to, bytes);
    return from;
  }

  void keep_own() {
    for (const Piece& piece : batch_.pieces()) {
      if (piece.out == piece.in || piece.out == nullptr) continue;
      if (piece.in != nullptr) std::memmove(piece.out, piece.in, piece.bytes);
      else std::memset(piece.out, 0, piece.bytes);
    }
  }

  Progress receive_small() {
    std::size_t bytes = batch_.bytes();
    if (link_.area.seat(root_).small[exchange_ & 1]->sequence.load(std::memory_order_acquire) < exchange_) {
      return turn_.wait_for(root_);
    }
    Cursor(batch_).scatter(link_.small_payload(root_, exchange_, bytes), bytes);
    link_.post.post(link_.area.seat(link_.me).flags->consumed.value, exchange_);
    return turn_.pass();
  }

  Progress fill() {
    if (link_.size == 1) return turn_.pass();
    for (; round_ < rounds_; ++round_) {
      if (round_ >= depth_) {
        int missing = link_.missing(&SeatFlags::taken, base_ + round_ - depth_ + 1, 0);
        if (missing < link_.size) return turn_.wait_for(missing);
      }
      at_ = put(at_, link_.area.seat(link_.me).slab + (round_ % depth_) * piece_, bytes_of_round());
      link_.post.post(link_.area.seat(link_.me).flags->packed.value, base_ + round_ + 1);
    }
    return turn_.pass();
  }

  Progress copy() {
    for (; round_ < rounds_; ++round_) {
      if (link_.area.seat(root_).flags->packed.value.load(std::memory_order_acquire) < base_ + round_ + 1) {
        return turn_.wait_for(root_);
      }
      const std::byte* from = link_.area.seat(root_).slab + (round_ % depth_) * piece_;
      if (batch_.bytes() >= streaming_from_bytes) at_.scatter_streaming(from, bytes_of_round());
      else at_.scatter(from, bytes_of_round());
      link_.post.post_to(root_, link_.area.seat(link_.me).flags->taken.value, base_ + round_ + 1);
    }
    return turn_.pass();
  }

  std::size_t bytes_of_round() const { return std::min<std::size_t>(piece_, batch_.bytes() - round_ * piece_); }

  LinkState& link_;
  Turn turn_;
  const int root_;
  const bool is_root_;
  const std::size_t piece_, depth_;
  Batch batch_;
  bool has_begun_ = false;
  std::uint64_t exchange_ = 0;
  std::uint64_t base_ = 0, rounds_ = 0, round_ = 0;
  Cursor at_;
};

}  // namespace

std::unique_ptr<Task> plan_broadcast(LinkState& link, const Collective& collective) {
  return std::make_unique<Broadcast>(link, collective);
}

}  // namespace hvd::transport::shm
