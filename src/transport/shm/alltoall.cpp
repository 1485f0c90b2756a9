// Alltoall over shared memory. Every pair of seats works by itself, so no seat needs to know how much others exchange.
// The slab of a seat has a part for each of the other seats, and each part has `pair_places` places.
//
// The data for a seat are cut into pieces. Both seats of a pair know how many pieces go each way. They number the
// pieces equally for the whole life of the link: the k-th piece of either direction has the pair's first number of this
// task, plus k. The sender puts a piece into a place and posts its number (PairFlags). The receiver copies the piece
// out and raises `taken`. If the last piece is short, it travels next to its number instead.
//
// The two seats of a pair exchange their slabs each time that all places of a part have been used, as in allgather.cpp:
// the seat that writes to a place is the one that read it last. (On 2 cores of Intel, 64 KB: 4.6 us instead of 6.3.) So
// piece u may be put into its place when three conditions hold:
//  1. This seat has read the other seat's last piece in that place, piece u - pair_places.
//  2. The other seat has read this seat's piece before that, piece u - 2 pair_places. The other seat's piece between
//     the two proves this. If there was no such piece, `taken` proves it.
//  3. If the place is in the other seat's slab: the other seat has begun an alltoall since the last verb of another
//     kind, and so has found its slab free. After another verb every pair begins with its own slabs.
// There is no barrier before or after. Before another verb uses the slab, all pieces must have been taken:
// LinkState::slab_is_free().
#include <algorithm>

#include "transport/segments/splits.hpp"
#include "transport/shm/batch.hpp"
#include "transport/shm/tasks.hpp"

namespace hvd::transport::shm {
namespace {

// Measured with 2 ranks on 2 cores of Intel: 16 KB are slower, 32 and 128 KB are as fast.
constexpr std::size_t most_piece_bytes = 64 << 10;
// From this size on, results do not fit into the caches.
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
        place_bytes_(std::min(most_piece_bytes, part_bytes_ / pair_places / least_piece_bytes * least_piece_bytes)) {}

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
      if (!has_own_) copy_own();  // copied while the other seats receive the first pieces
      for (Peer& peer : peers_) moves |= receive(peer, busy);
    }
    if (open_ > 0) return turn_.wait_for(busy);
    if (!has_own_) copy_own();
    return finish();
  }

  const Error& failure() const override { return *link_.aborted; }
  Seat waiting_for() const override { return Seat{turn_.waiting_for}; }

 private:
  struct Peer {
    int seat;
    std::size_t unsent, unreceived;  // the numbers of bytes that are left
    Cursor in, out;
    std::uint64_t pieces_out = 0, pieces_in = 0;
    std::uint64_t sent = 0, received = 0;  // numbers of pieces that are done
  };

  std::int64_t elements(std::size_t bytes) const { return static_cast<std::int64_t>(bytes / element_bytes_); }
  std::size_t bytes(std::int64_t elements) const { return static_cast<std::size_t>(elements) * element_bytes_; }
  Pair& pair_with(const Peer& peer) { return link_.pairs[static_cast<std::size_t>(peer.seat)]; }

  bool begin(int& busy) {
    bool needs_slab = false;
    for (int seat = 0; seat < link_.size; ++seat)
      needs_slab |= seat != link_.me && bytes(std::max(splits_.sent(seat), splits_.received(seat))) > inline_bytes;
    if (needs_slab) {
      if (!link_.slab_is_free_of_others(busy)) return false;
      link_.pairs_use_slab = true;
    }
    ++link_.exchanges;
    has_begun_ = true;
    has_own_ = false;
    peers_.clear();
    open_ = 0;
    Cursor in(in_), out(out_);
    for (int seat = 0; seat < link_.size; ++seat) {
      Peer peer{seat, bytes(splits_.sent(seat)), bytes(splits_.received(seat)), in, out};
      in.skip(peer.unsent);
      out.skip(peer.unreceived);
      if (seat == link_.me) own_ = peer;
      else if (peer.unsent + peer.unreceived > 0) meet(peer);
    }
    // Each seat begins with a different peer.
    auto after_me = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) { return peer.seat > link_.me; });
    std::rotate(peers_.begin(), after_me, peers_.end());
    return true;
  }

  void meet(Peer& peer) {
    peer.pieces_out = rounds_of(peer.unsent, place_bytes_);
    peer.pieces_in = rounds_of(peer.unreceived, place_bytes_);
    open_ += (peer.unsent > 0) + (peer.unreceived > 0);
    peers_.push_back(peer);
    Pair& pair = pair_with(peer);
    bool uses_slab = std::max(peer.unsent, peer.unreceived) > inline_bytes;
    if (!uses_slab || pair.slab_count == link_.slab_count) return;
    pair.slab_count = link_.slab_count;
    pair.next = (pair.next + 2 * pair_places - 1) / (2 * pair_places) * (2 * pair_places);
    pair.begun = pair.both_since = pair.next;
    pair.has_heard = false;
  }

  Progress finish() {
    for (const Peer& peer : peers_) {
      Pair& pair = pair_with(peer);
      if (peer.pieces_out > 0) pair.sent_end = pair.next + peer.pieces_out;
      pair.next += std::max(peer.pieces_out, peer.pieces_in);
      if (peer.pieces_out != peer.pieces_in) pair.both_since = pair.next;
    }
    return turn_.pass();
  }

  // Checks the three conditions at the top of this file.
  bool may_send(const Peer& peer, Pair& pair, const Flag& taken, bool is_inline) {
    const std::uint64_t first = pair.next, number = first + peer.sent;
    if (number < pair.begun + pair_places) return has_taken(taken, pair.sent_end);
    const std::uint64_t before = number - pair_places;
    bool other_was_there = before >= first ? before - first < peer.pieces_in : before >= pair.both_since;
    if (other_was_there) {
      if (before >= first && before - first >= peer.received) return false;
    } else {
      bool is_of_this_task = number >= first + 2 * pair_places;
      if (!has_taken(taken, is_of_this_task ? number - 2 * pair_places + 1 : pair.sent_end)) return false;
    }
    if (!is_inline && !pair.has_heard && is_swapped(number)) pair.has_heard = has_taken(taken, pair.begun + 1);
    return is_inline || pair.has_heard || !is_swapped(number);
  }
  static bool has_taken(const Flag& taken, std::uint64_t end) {
    return taken.value.load(std::memory_order_acquire) >= end;
  }

  bool send(Peer& peer, int& busy) {
    if (peer.unsent == 0) return false;
    Pair& pair = pair_with(peer);
    PairFlags& flags = link_.area.pair(link_.me, peer.seat);
    const std::size_t piece = std::min(peer.unsent, place_bytes_);
    if (!may_send(peer, pair, flags.taken, piece <= inline_bytes)) {
      busy = peer.seat;
      return false;
    }
    const std::uint64_t number = pair.next + peer.sent;
    SmallSlot& post = flags.posts[number % std::size(flags.posts)];
    if (piece <= inline_bytes) peer.in.gather(post.payload, piece);
    else peer.in.gather(place(link_.me, peer.seat, number), piece);
    link_.post.post_to(peer.seat, post.sequence, number + 1);
    ++peer.sent;
    peer.unsent -= piece;
    open_ -= peer.unsent == 0;
    return true;
  }

  bool receive(Peer& peer, int& busy) {
    if (peer.unreceived == 0) return false;
    Pair& pair = pair_with(peer);
    PairFlags& flags = link_.area.pair(peer.seat, link_.me);
    const std::uint64_t number = pair.next + peer.received;
    SmallSlot& post = flags.posts[number % std::size(flags.posts)];
    if (post.sequence.load(std::memory_order_acquire) <= number) {
      busy = peer.seat;
      return false;
    }
    const std::size_t piece = std::min(peer.unreceived, place_bytes_);
    const std::byte* from = piece <= inline_bytes ? post.payload : place(peer.seat, link_.me, number);
    if (out_.bytes() >= streaming_exchange_bytes) peer.out.scatter_streaming(from, piece);
    else peer.out.scatter(from, piece);
    link_.post.post_to(peer.seat, flags.taken.value, number + 1);
    pair.has_heard |= piece > inline_bytes;
    ++peer.received;
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

  // True if the piece is in the slab of its receiver.
  static bool is_swapped(std::uint64_t number) { return (number / pair_places & 1) != 0; }
  std::byte* place(int from, int to, std::uint64_t number) {
    if (is_swapped(number)) std::swap(from, to);
    return link_.area.seat(from).slab + static_cast<std::size_t>(to) * part_bytes_ +
           (number % pair_places) * place_bytes_;
  }

  LinkState& link_;
  Turn turn_;
  const std::size_t element_bytes_;
  Splits splits_;
  const std::size_t part_bytes_, place_bytes_;
  Batch in_, out_;
  std::vector<Peer> peers_;  // the seats with which data are exchanged, beginning with the next higher seat
  Peer own_{};
  bool has_begun_ = false, has_own_ = false;
  int open_ = 0;  // number of directions of all peers that still have data
};

}  // namespace

std::unique_ptr<Task> plan_alltoall(LinkState& link, const Collective& collective) {
  return std::make_unique<Alltoall>(link, collective);
}

}  // namespace hvd::transport::shm
