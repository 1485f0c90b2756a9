// Alltoall: every seat exchanges messages with every other seat. In round k a seat sends to the seat k places ahead and
// receives from the seat k places behind. The data for one seat are cut into messages of `piece_bytes`.
//
// Each direction has several messages under way. They begin in the order of the rounds, and within a round in the order
// of the pieces; they may end in any order. Consider the first message in that order, on all seats, that has not ended.
// All messages before it have ended, so it is under way at both of its ends. So at least one message always progresses,
// even if the ranks are far apart.
#include <algorithm>
#include <array>
#include <optional>

#include "collectives/algorithm.hpp"
#include "collectives/schedule/cost_model.hpp"
#include "collectives/schedule/peer_links.hpp"
#include "collectives/schedule/scratch.hpp"
#include "transport/segments/splits.hpp"

namespace hvd::collectives {

namespace {

using transport::Pending;

constexpr std::size_t piece_bytes = 256 << 10;
constexpr std::size_t most_under_way = 8;  // limit on messages under way in each direction

class Pairwise final : public Task {
 public:
  Pairwise(const Collective& collective, const Team& team)
      : dtype_(collective.dtype),
        element_bytes_(size_of(collective.dtype)),
        me_(team.group.me.value),
        size_(team.size()),
        peers_(team),
        splits_(size_) {}

  void resize(std::span<const std::int64_t> sent, std::span<const std::int64_t> received) override {
    splits_.resize(sent, received);
  }
  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence sequence) override {
    in_.assign(in, dtype_);
    out_.assign(out, dtype_);
    splits_.check(in_.count(), out_.count(), me_);
    sequence_ = sequence;
    has_own_ = false;
    for (Direction* direction : {&sends_, &receives_}) direction->next = {};
  }

  Progress step() override {
    if (failure_) return Progress::failed;
    for (bool moves = true; moves;) {
      moves = false;
      for (Message& message : receives_.messages)
        if (!advance(receives_, message, moves)) return Progress::failed;
      for (Message& message : sends_.messages)
        if (!advance(sends_, message, moves)) return Progress::failed;
      if (!has_own_) copy_own();  // copied after the first messages have been started, so both happen at the same time
    }
    return is_over(sends_) && is_over(receives_) ? Progress::done : Progress::pending;
  }

  const Error& failure() const override { return *failure_; }
  Seat waiting_for() const override {
    for (const Direction* direction : {&receives_, &sends_})
      for (const Message& message : direction->messages)
        if (message.pending) return Seat{message.piece.seat};
    return Seat{-1};
  }

 private:
  // A range of the data that go to one seat or come from it.
  struct Piece {
    int seat = -1;
    std::int64_t begin = 0, count = 0;  // the range in the input or output
    std::uint32_t number = 0;           // number of the piece among those between the two seats
  };
  struct Message {
    std::optional<Pending> pending;
    Piece piece;
    std::byte* landing = nullptr;  // memory in which the piece arrives, if that is not its final place
    Scratch scratch;
  };
  // The position of the piece that begins next.
  struct Place {
    int round = 1;
    std::int64_t at = 0;  // the position in the data for the round's seat
    std::uint32_t number = 0;
  };
  struct Direction {
    Place next;
    std::array<Message, most_under_way> messages;
  };

  // Returns false if the task has failed.
  bool advance(Direction& direction, Message& message, bool& moves) {
    if (message.pending) {
      transport::Link& link = *peers_.to(Seat{message.piece.seat}).link;
      Progress progress = link.poll(*message.pending);
      if (progress == Progress::pending) return true;
      if (progress == Progress::failed) {
        failure_ = link.failure();
        return false;
      }
      message.pending.reset();
      moves = true;
      if (message.landing != nullptr) out_.scatter(message.piece.begin, message.piece.count, message.landing);
    }
    std::optional<Piece> piece = take(direction);
    if (!piece) return true;
    moves = true;
    message.piece = *piece;
    message.landing = nullptr;
    if (&direction == &sends_) send(message);
    else receive(message);
    return true;
  }

  std::optional<Piece> take(Direction& direction) {
    bool sends = &direction == &sends_;
    for (Place& next = direction.next; next.round < size_; next = {next.round + 1, 0, 0}) {
      int seat = (sends ? me_ + next.round : me_ - next.round + size_) % size_;
      std::int64_t all = sends ? splits_.sent(seat) : splits_.received(seat);
      if (next.at == all) continue;
      std::int64_t begin = sends ? splits_.sent_begin(seat) : splits_.received_begin(seat);
      std::int64_t count = std::min(all - next.at, static_cast<std::int64_t>(piece_bytes / element_bytes_));
      Piece piece{seat, begin + next.at, count, next.number++};
      next.at += count;
      return piece;
    }
    return std::nullopt;
  }

  void send(Message& message) {
    const Piece& piece = message.piece;
    std::byte* from = in_.contiguous(piece.begin, piece.count);
    if (from == nullptr) {
      from = message.scratch.reserve(bytes_of(piece));
      in_.gather(piece.begin, piece.count, from);
    }
    const PeerLinks::Peer& peer = peers_.to(Seat{piece.seat});
    message.pending = peer.link->send(peer.seat, {from, bytes_of(piece)}, {sequence_, 0, piece.number});
  }
  void receive(Message& message) {
    const Piece& piece = message.piece;
    std::byte* to = out_.contiguous(piece.begin, piece.count);
    if (to == nullptr) to = message.landing = message.scratch.reserve(bytes_of(piece));
    const PeerLinks::Peer& peer = peers_.to(Seat{piece.seat});
    message.pending = peer.link->recv(peer.seat, {to, bytes_of(piece)}, {sequence_, 0, piece.number});
  }

  void copy_own() {
    has_own_ = true;
    std::int64_t from = splits_.sent_begin(me_);
    out_.visit(splits_.received_begin(me_), splits_.received(me_), [&](std::byte* to, std::int64_t count) {
      if (to != nullptr) in_.gather(from, count, to);
      from += count;
    });
  }

  bool is_over(const Direction& direction) const {
    return direction.next.round >= size_ &&
           std::none_of(direction.messages.begin(), direction.messages.end(),
                        [](const Message& message) { return message.pending.has_value(); });
  }
  std::size_t bytes_of(const Piece& piece) const { return static_cast<std::size_t>(piece.count) * element_bytes_; }

  const DataType dtype_;
  const std::size_t element_bytes_;
  const int me_, size_;
  const PeerLinks peers_;
  transport::Splits splits_;
  SegmentArray in_, out_;
  Sequence sequence_;
  bool has_own_ = false;
  Direction sends_, receives_;
  std::optional<Error> failure_;
};

class PairwiseAlgorithm final : public Algorithm {
 public:
  const char* name() const override { return "pairwise"; }
  bool needs_links_of_host() const override { return false; }
  bool does(Verb verb) const override { return verb == Verb::alltoall; }
  std::string_view addition_order(const Collective&, const Team&) const override { return "none"; }

  Cost cost(const Collective& collective, const Team& team) const override {
    if (!does(collective.verb) || !is_connected(collective, team)) return Cost::impossible();
    auto [latency_s, seconds_per_byte] = message_cost(team);
    double others = team.size() - 1;
    double rounds = (others + most_under_way - 1) / most_under_way;
    return {rounds * latency_s + others / team.size() * bytes_of(collective) * seconds_per_byte, true};
  }

  std::unique_ptr<Task> plan(const Collective& collective, Team& team) const override {
    return std::make_unique<Pairwise>(collective, team);
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_pairwise() {
  return std::make_unique<PairwiseAlgorithm>();
}

}  // namespace hvd::collectives
