// Alltoall over shared memory. Every ordered pair of seats is a channel of its own, so nobody needs to know how much
// others exchange; the slab of a seat has a part for each of its readers.
//
// What goes to a seat is cut into pieces. A piece is put into a place of the sender's slab and posted in the channel of
// the pair (PairFlags); the receiver copies it out and raises `taken`. A place is filled again once it was taken. The
// last piece, if it is short, travels beside its number instead. Pieces are numbered through the life of the link.
// No barrier, neither before nor after: both ends of a channel know how many pieces go through it. Only when another
// verb uses the slab next must all pieces have been taken: LinkState::slab_is_free().
#include <algorithm>

#include "transport/shm/batch.hpp"
#include "transport/shm/tasks.hpp"
#include "transport/splits.hpp"

namespace hvd::transport::shm {
namespace {

// Results of this size do not fit the caches.
constexpr std::size_t streaming_exchange_bytes = 16 << 20;

class Alltoall final : public Task {
 public:
  Alltoall(LinkState& link, const Collective& collective)
      : link_(link),
        turn_(link),
        element_bytes_(size_of(collective.dtype)),
        splits_(link.size),
        part_bytes_(link.area.shape().slab_bytes / static_cast<std::size_t>(link.size) / least_piece_bytes *
                    least_piece_bytes),
        place_bytes_(part_bytes_ / pair_places / least_piece_bytes * least_piece_bytes) {}

  void resize(std::span<const std::int64_t> sent, std::span<const std::int64_t> received) override {
    splits_.resize(sent, received);
  }
  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence) override {
    in_.assign(in);
    out_.assign(out);
    splits_.check(elements(in_.bytes()), elements(out_.bytes()), link_.me);
    turn_.queue();
    has_begun_ = false;
  }

  Progress step() override {
    if (link_.aborted) [[unlikely]]
      return Progress::failed;
    int busy = -1;
    if (!has_begun_ && (!turn_.has_come() || !begin(busy))) return turn_.wait_for(busy);
    for (bool moves = true; moves && open_ > 0;) {
      moves = false;
      for (Peer& peer : peers_) moves |= send(peer, busy);
      if (!has_own_) copy_own();  // while the others see the first pieces
      for (Peer& peer : peers_) moves |= receive(peer, busy);
    }
    if (open_ > 0) return turn_.wait_for(busy);
    if (!has_own_) copy_own();
    return turn_.pass();
  }

  const Error& failure() const override { return *link_.aborted; }
  Seat waiting_for() const override { return Seat{turn_.waiting_for}; }

 private:
  struct Peer {
    int seat;
    std::size_t unsent, unreceived;  // bytes
    Cursor in, out;
  };

  std::int64_t elements(std::size_t bytes) const { return static_cast<std::int64_t>(bytes / element_bytes_); }
  std::size_t bytes(std::int64_t elements) const { return static_cast<std::size_t>(elements) * element_bytes_; }

  bool begin(int& busy) {
    bool needs_slab = false;
    for (int seat = 0; seat < link_.size; ++seat)
      needs_slab |= seat != link_.me && bytes(splits_.sent(seat)) > inline_bytes;
    if (needs_slab) {
      if (!link_.slab_is_free_of_others(busy)) return false;
      link_.pairs_use_slab = true;
    }
    has_begun_ = true;
    has_own_ = false;
    peers_.clear();
    Cursor in(in_), out(out_);
    // By turns, so that not everybody begins with the same seat.
    for (int seat = 0; seat < link_.size; ++seat) {
      Peer peer{seat, bytes(splits_.sent(seat)), bytes(splits_.received(seat)), in, out};
      in.skip(peer.unsent);
      out.skip(peer.unreceived);
      if (seat == link_.me) own_ = peer;
      else if (peer.unsent + peer.unreceived > 0) peers_.push_back(peer);
    }
    auto after_me = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) { return peer.seat > link_.me; });
    std::rotate(peers_.begin(), after_me, peers_.end());
    open_ = 0;
    for (const Peer& peer : peers_) open_ += (peer.unsent > 0) + (peer.unreceived > 0);
    return true;
  }

  bool send(Peer& peer, int& busy) {
    if (peer.unsent == 0) return false;
    Pair& pair = link_.pairs[static_cast<std::size_t>(peer.seat)];
    PairFlags& flags = link_.area.pair(link_.me, peer.seat);
    if (pair.sent >= pair_places && flags.taken.value.load(std::memory_order_acquire) <= pair.sent - pair_places) {
      busy = peer.seat;
      return false;
    }
    std::size_t piece = std::min(peer.unsent, place_bytes_);
    SmallSlot& post = flags.posts[pair.sent % pair_places];
    if (piece <= inline_bytes) peer.in.gather(post.payload, piece);
    else if (link_.has_to_stream(piece)) peer.in.gather_streaming(place(link_.me, peer.seat, pair.sent), piece);
    else peer.in.gather(place(link_.me, peer.seat, pair.sent), piece);
    link_.post.post_to(peer.seat, post.sequence, ++pair.sent);
    peer.unsent -= piece;
    open_ -= peer.unsent == 0;
    return true;
  }

  bool receive(Peer& peer, int& busy) {
    if (peer.unreceived == 0) return false;
    Pair& pair = link_.pairs[static_cast<std::size_t>(peer.seat)];
    PairFlags& flags = link_.area.pair(peer.seat, link_.me);
    SmallSlot& post = flags.posts[pair.received % pair_places];
    if (post.sequence.load(std::memory_order_acquire) <= pair.received) {
      busy = peer.seat;
      return false;
    }
    std::size_t piece = std::min(peer.unreceived, place_bytes_);
    const std::byte* from = piece <= inline_bytes ? post.payload : place(peer.seat, link_.me, pair.received);
    if (out_.bytes() >= streaming_exchange_bytes) peer.out.scatter_streaming(from, piece);
    else peer.out.scatter(from, piece);
    link_.post.post_to(peer.seat, flags.taken.value, ++pair.received);
    peer.unreceived -= piece;
    open_ -= peer.unreceived == 0;
    return true;
  }

  void copy_own() {
    has_own_ = true;
    own_.out.walk(own_.unreceived, [&](std::byte*, std::byte* to, std::size_t part) {
      if (to == nullptr) own_.in.skip(part);
      else if (out_.bytes() >= streaming_exchange_bytes) own_.in.gather_streaming(to, part);
      else own_.in.gather(to, part);
    });
  }

  std::byte* place(int from, int to, std::uint64_t number) {
    return link_.area.seat(from).slab + static_cast<std::size_t>(to) * part_bytes_ +
           (number % pair_places) * place_bytes_;
  }

  LinkState& link_;
  Turn turn_;
  const std::size_t element_bytes_;
  Splits splits_;
  const std::size_t part_bytes_, place_bytes_;
  Batch in_, out_;
  std::vector<Peer> peers_;  // with whom I exchange something, from the seat after me on
  Peer own_{};
  bool has_begun_ = false, has_own_ = false;
  int open_ = 0;  // directions of peers_ in which there is something left
};

}  // namespace

std::unique_ptr<Task> plan_alltoall(LinkState& link, const Collective& collective) {
  return std::make_unique<Alltoall>(link, collective);
}

}  // namespace hvd::transport::shm
