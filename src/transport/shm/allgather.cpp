// Allgather and barrier over shared memory. (A barrier is an allgather without data.)
//
// One shot (every share fits into a small slot): each seat posts its share and copies all shares out of the slots.
// Rounds (large shares): in round i every seat puts the i-th piece of its share into its slab and into its own result
// and raises `packed`. It then copies the i-th pieces of the others out of their slabs and raises `taken`. A slab holds
// several pieces. The memory of a piece is filled again when all others have taken the piece. With two seats, the seats
// exchange their slabs after each use of a place: the seat that writes to a place is the one that read it last. So the
// place's cache lines move back and forth between the two cores. Without the exchange a reader would keep sharing the
// lines, and each store would cost a round trip (measured on 2 cores of Zen 4, 1 MB from each seat: 150 us with stores
// that bypass the caches, 78 us with exchanged slabs). The writer knows that the place is free, because it has read the
// place itself.
// After another verb the peer may still have to unpack its slab. Therefore every seat then begins with its own slab.
#include <algorithm>

#include "transport/shm/batch.hpp"
#include "transport/shm/tasks.hpp"

namespace hvd::transport::shm {
namespace {

constexpr std::size_t allgather_piece_bytes = 128 << 10;
constexpr std::size_t streaming_gather_bytes = 16 << 20;  // 4 MB by 4 ranks: 480 us, bypassing caches 760 us

class Allgather final : public Task {
 public:
  Allgather(LinkState& link, const Collective& collective)
      : link_(link),
        turn_(link),
        is_barrier_(collective.verb == Verb::barrier),
        shares_(collective, link.size),
        piece_(std::min(allgather_piece_bytes, link.area.shape().slab_bytes / 2)),
        depth_(link.area.shape().slab_bytes / piece_),
        out_at_(static_cast<std::size_t>(link.size)) {}

  void resize(std::span<const std::int64_t> sent, std::span<const std::int64_t> received) override {
    shares_.resize(sent, received);
  }
  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence) override {
    if (is_barrier_) in = out = {};
    in_.assign(in);
    out_.assign(out);
    shares_.deal(out_.bytes(), link_.me, in_.bytes());
    turn_.queue();
    has_begun_ = false;
  }

  Progress step() override {
    if (link_.aborted) [[unlikely]]
      return Progress::failed;
    int busy = -1;
    if (!has_begun_ && (!turn_.has_come() || !begin(busy))) return turn_.wait_for(busy);
    if (shares_.largest() == 0 && !is_barrier_) return turn_.pass();
    return is_small() ? finish_small() : step_rounds();
  }

  const Error& failure() const override { return *link_.aborted; }
  Seat waiting_for() const override { return Seat{turn_.waiting_for}; }

 private:
  bool is_large() const { return out_.bytes() >= streaming_gather_bytes; }
  bool is_small() const { return shares_.largest() <= small_slot_bytes; }

  bool begin(int& busy) {
    bool is_nothing = shares_.largest() == 0 && !is_barrier_;
    if (!is_nothing && !(is_small() ? link_.small_slot_is_free(busy) : link_.slab_is_free(busy))) return false;
    has_begun_ = true;
    if (is_nothing) return true;
    Cursor at(out_);
    for (int seat = 0; seat < link_.size; ++seat) {
      out_at_[static_cast<std::size_t>(seat)] = at;
      at.skip(shares_.bytes(seat));
    }
    if (is_small()) {
      exchange_ = ++link_.small_count;
      in_at_ = Cursor(in_);
      put(link_.small_payload(link_.me, exchange_, in_.bytes()), in_.bytes());
      link_.post_small(exchange_);
      missing_ = 0;
      return true;
    }
    rounds_ = rounds_of(shares_.largest(), piece_);
    base_ = link_.take_chunks(link_.gathers, rounds_);
    if (link_.size > 1) link_.slab_awaited = base_ + rounds_;
    filled_ = copied_ = 0;
    in_at_ = Cursor(in_);
    return true;
  }

  Progress finish_small() {
    missing_ = link_.missing_small(exchange_, missing_);
    if (missing_ < link_.size) return turn_.wait_for(missing_);
    link_.small_read_by_all = exchange_ - 1;
    for (int seat = 0; seat < link_.size; ++seat) {
      std::size_t bytes = shares_.bytes(seat);
      out_at_[static_cast<std::size_t>(seat)].scatter(link_.small_payload(seat, exchange_, bytes), bytes);
    }
    return turn_.pass();
  }

  Progress step_rounds() {
    while (copied_ < rounds_) {
      if (filled_ < rounds_ && filled_ <= copied_ + 1) {  // it is enough to fill one piece ahead
        int late = filled_ < depth_ ? link_.size : link_.missing(&SeatFlags::taken, base_ + filled_ - depth_ + 1, 0);
        if (late == link_.size) fill();
        else if (filled_ == copied_) return turn_.wait_for(late);
      }
      int missing = link_.missing(&SeatFlags::packed, base_ + copied_ + 1, 0);
      if (missing < link_.size) return turn_.wait_for(missing);
      copy();
    }
    return turn_.pass();
  }

  void put(std::byte* to, std::size_t bytes) {
    if (link_.has_to_stream(bytes)) in_at_.gather_streaming(to, bytes);
    else in_at_.gather(to, bytes);
  }

  // Returns the memory of the seat's piece in a round.
  std::byte* place(int seat, std::uint64_t round) const {
    std::uint64_t use = base_ + round - link_.gathers.begin;
    int owner = link_.size == 2 ? static_cast<int>((static_cast<std::uint64_t>(seat) + use / depth_) & 1) : seat;
    return link_.area.seat(owner).slab + (use % depth_) * piece_;
  }

  void fill() {
    std::byte* slab = place(link_.me, filled_);
    std::size_t bytes = bytes_of(link_.me, filled_);
    Cursor again = in_at_;
    if (link_.size == 2) in_at_.gather(slab, bytes);
    else put(slab, bytes);
    keep_own(again, bytes);
    ++filled_;
    link_.post.post(link_.area.seat(link_.me).flags->packed.value, base_ + filled_);
  }

  // Copies this seat's own piece from its input, which was just read. The slab's cache lines are moving to the other
  // cores.
  void keep_own(Cursor from, std::size_t bytes) {
    out_at_[static_cast<std::size_t>(link_.me)].walk(bytes, [&](const std::byte*, std::byte* out, std::size_t part) {
      if (out == nullptr) from.skip(part);
      else if (is_large()) from.gather_streaming(out, part);
      else from.gather(out, part);
    });
  }

  void copy() {
    for (int turn = 1; turn < link_.size; ++turn) {
      int seat = link_.me + turn < link_.size ? link_.me + turn : link_.me + turn - link_.size;
      const std::byte* slab = place(seat, copied_);
      Cursor& at = out_at_[static_cast<std::size_t>(seat)];
      if (is_large()) at.scatter_streaming(slab, bytes_of(seat, copied_));
      else at.scatter(slab, bytes_of(seat, copied_));
    }
    ++copied_;
    link_.post.post(link_.area.seat(link_.me).flags->taken.value, base_ + copied_);
  }

  // Returns the size of a seat's piece in a round; zero after the end of its share.
  std::size_t bytes_of(int seat, std::uint64_t round) const {
    std::size_t share = shares_.bytes(seat), begin = round * piece_;
    return begin >= share ? 0 : std::min(piece_, share - begin);
  }

  LinkState& link_;
  Turn turn_;
  const bool is_barrier_;
  BytesOfSeats shares_;
  const std::size_t piece_, depth_;
  Batch in_, out_;
  std::vector<Cursor> out_at_;  // the position in the output for each seat
  Cursor in_at_;
  bool has_begun_ = false;
  int missing_ = 0;
  std::uint64_t exchange_ = 0;
  std::uint64_t base_ = 0, rounds_ = 0, filled_ = 0, copied_ = 0;
};

}  // namespace

std::unique_ptr<Task> plan_allgather(LinkState& link, const Collective& collective) {
  return std::make_unique<Allgather>(link, collective);
}

std::unique_ptr<Task> plan_barrier(LinkState& link, const Collective& collective) {
  return std::make_unique<Allgather>(link, collective);
}

}  // namespace hvd::transport::shm
