// Reduce-scatter over shared memory. As in allreduce, every element is reduced in the order of the seats.
//
// One shot (small): every seat posts all of its data, and each seat reduces its share from all slots. Rounds (large):
// in round i every seat puts the i-th piece of each other seat's share into a place for that seat, and raises `packed`.
// Then each seat reduces the pieces of its share from all places and from its own input, and raises `taken`. Each pair
// of seats has two places for either direction, in the slabs of both seats. The two seats exchange their slabs when
// both places have been used, as in allgather.cpp: the seat that writes to a place is the one that read it last, so it
// knows that the place is free. After another verb the peer may still have to unpack its slab. Therefore every seat
// then begins with its own slab.
#include <algorithm>

#include "transport/shm/batch.hpp"
#include "transport/shm/tasks.hpp"

namespace hvd::transport::shm {
namespace {

class ReduceScatter final : public Task {
 public:
  ReduceScatter(LinkState& link, const Collective& collective)
      : link_(link),
        turn_(link),
        reduce_(collective),
        shares_(collective, link.size),
        piece_(half_bytes() / static_cast<std::size_t>(link.size) / least_piece_bytes * least_piece_bytes),
        sources_(static_cast<std::size_t>(link.size)),
        in_at_(static_cast<std::size_t>(link.size)) {}

  void resize(std::span<const std::int64_t> sent, std::span<const std::int64_t> received) override {
    shares_.resize(sent, received);
  }
  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence) override {
    in_.assign(in);
    out_.assign(out);
    shares_.deal(in_.bytes(), link_.me, out_.bytes());
    turn_.queue();
    has_begun_ = false;
  }

  Progress step() override {
    if (link_.aborted) [[unlikely]]
      return Progress::failed;
    int busy = -1;
    if (!has_begun_ && (!turn_.has_come() || !begin(busy))) return turn_.wait_for(busy);
    if (in_.bytes() == 0) return turn_.pass();
    return in_.bytes() <= small_slot_bytes ? finish_small() : step_rounds();
  }

  void rescale(double prescale, double postscale) override { reduce_.scale = {prescale, postscale}; }
  const Error& failure() const override { return *link_.aborted; }
  Seat waiting_for() const override { return Seat{turn_.waiting_for}; }

 private:
  std::size_t half_bytes() const { return link_.area.shape().slab_bytes / 2; }

  bool begin(int& busy) {
    std::size_t bytes = in_.bytes();
    if (bytes != 0 && !(bytes <= small_slot_bytes ? link_.small_slot_is_free(busy) : link_.slab_is_free(busy)))
      return false;
    has_begun_ = true;
    out_at_ = Cursor(out_);
    if (bytes == 0) return true;
    if (bytes <= small_slot_bytes) {
      exchange_ = ++link_.small_count;
      Cursor at(in_);
      std::byte* slot = link_.small_payload(link_.me, exchange_, bytes);
      if (link_.has_to_stream(bytes)) at.gather_streaming(slot, bytes);
      else at.gather(slot, bytes);
      link_.post_small(exchange_);
      missing_ = 0;
      return true;
    }
    rounds_ = rounds_of(shares_.largest(), piece_);
    base_ = link_.take_chunks(link_.scatters, rounds_);
    if (link_.size > 1) link_.slab_awaited = base_ + rounds_;
    packed_ = reduced_ = 0;
    Cursor at(in_);
    for (int seat = 0; seat < link_.size; ++seat) {
      in_at_[static_cast<std::size_t>(seat)] = at;
      at.skip(shares_.bytes(seat));
    }
    return true;
  }

  Progress finish_small() {
    missing_ = link_.missing_small(exchange_, missing_);
    if (missing_ < link_.size) return turn_.wait_for(missing_);
    link_.small_read_by_all = exchange_ - 1;
    for (int seat = 0; seat < link_.size; ++seat) {
      sources_[static_cast<std::size_t>(seat)] =
          link_.small_payload(seat, exchange_, in_.bytes()) + shares_.begin(link_.me);
    }
    reduce_to_out(shares_.bytes(link_.me));
    return turn_.pass();
  }

  Progress step_rounds() {
    while (reduced_ < rounds_) {
      while (packed_ < rounds_ && packed_ < reduced_ + 2) pack();
      int missing = link_.missing(&SeatFlags::packed, base_ + reduced_ + 1, 0);
      if (missing < link_.size) return turn_.wait_for(missing);
      reduce_round();
    }
    return turn_.pass();
  }

  void pack() {
    for (int seat = 0; seat < link_.size; ++seat)
      if (seat != link_.me)
        in_at_[static_cast<std::size_t>(seat)].gather(place(link_.me, seat, packed_), bytes_of(seat, packed_));
    ++packed_;
    link_.post.post(link_.area.seat(link_.me).flags->packed.value, base_ + packed_);
  }

  void reduce_round() {
    for (int seat = 0; seat < link_.size; ++seat)
      sources_[static_cast<std::size_t>(seat)] = place(seat, link_.me, reduced_);
    in_at_[static_cast<std::size_t>(link_.me)].walk(bytes_of(link_.me, reduced_),
                                                    [&](const std::byte* in, std::byte*, std::size_t part) {
                                                      const void*& own = sources_[static_cast<std::size_t>(link_.me)];
                                                      // Null data stand for zeros. They are stored in a place that no
                                                      // other seat uses.
                                                      if (in == nullptr)
                                                        std::memset(place(link_.me, link_.me, reduced_), 0, part);
                                                      own = in == nullptr ? place(link_.me, link_.me, reduced_) : in;
                                                      reduce_to_out(part);
                                                    });
    ++reduced_;
    link_.post.post(link_.area.seat(link_.me).flags->taken.value, base_ + reduced_);
  }

  void reduce_to_out(std::size_t bytes) {
    out_at_.walk(bytes, [&](std::byte*, std::byte* out, std::size_t part) {
      void* destination = out;
      if (out != nullptr) reduce_(sources_.data(), link_.size, &destination, 1, part);
      for (auto& source : sources_) source = static_cast<const std::byte*>(source) + part;
    });
  }

  // Returns the memory of the data that seat `from` has for seat `to` in a round.
  std::byte* place(int from, int to, std::uint64_t round) {
    std::uint64_t use = base_ + round - link_.scatters.begin;
    if ((use / 2 & 1) != 0) std::swap(from, to);
    return link_.area.seat(from).slab + (use & 1) * half_bytes() + static_cast<std::size_t>(to) * piece_;
  }
  std::size_t bytes_of(int seat, std::uint64_t round) const {
    std::size_t share = shares_.bytes(seat), begin = round * piece_;
    return begin >= share ? 0 : std::min(piece_, share - begin);
  }

  LinkState& link_;
  Turn turn_;
  Reduction reduce_;
  BytesOfSeats shares_;
  const std::size_t piece_;
  std::vector<const void*> sources_;
  std::vector<Cursor> in_at_;  // the position in the input for each seat
  Batch in_, out_;
  Cursor out_at_;
  bool has_begun_ = false;
  int missing_ = 0;
  std::uint64_t exchange_ = 0;
  std::uint64_t base_ = 0, rounds_ = 0, packed_ = 0, reduced_ = 0;
};

}  // namespace

std::unique_ptr<Task> plan_reduce_scatter(LinkState& link, const Collective& collective) {
  return std::make_unique<ReduceScatter>(link, collective);
}

}  // namespace hvd::transport::shm
