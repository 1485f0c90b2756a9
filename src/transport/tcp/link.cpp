#include "transport/tcp/link.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/panic.hpp"
#include "connections/net_peers.hpp"
#include "transport/tcp/stream.hpp"

namespace hvd::transport::tcp {
namespace {

using State = Operation::State;

// The most turns of all streams within one poll() while they move. The limit exists because the engine has other links
// to poll.
constexpr int most_turns = 8;
constexpr unsigned many_looks = 10'000;
// The number of connections to one peer. The chunks of a batch are distributed among them, so that the window of one
// connection does not limit the pair. A connection is made when it is first used, so small batches use only the first.
constexpr std::size_t streams_per_peer = 4;

class TcpLink final : public Link {
 public:
  TcpLink(const Surroundings& surroundings, Group group, std::string name)
      : world_(*surroundings.world),
        net_(surroundings.ask<connections::NetPeers>()),
        wake_(surroundings.wake),
        group_(std::move(group)),
        name_("tcp/" + std::move(name)),
        streams_(static_cast<std::size_t>(group_.size()) * streams_per_peer) {}
  ~TcpLink() override {
    for (auto& stream : streams_)
      if (stream) close(*stream);
  }

  const Group& group() const override { return group_; }

  Pending send(Seat to, ConstBytes bytes, Channel channel) override {
    // The table contains both sends and receives. The bytes of a send are only read.
    std::uint32_t number = new_operation(to, {const_cast<std::byte*>(bytes.data()), bytes.size()}, channel);
    if (is_aborted_) return {number + 1};
    wake_if_armed();
    if (to == group_.me) {
      own_sends_.push_back(number);
      match_own();
      return {number + 1};
    }
    std::size_t index = index_of(to, channel);
    Stream& stream = stream_at(index);
    stream.send(number);
    activate(index);
    if (stream.is_open()) stream.push();
    return {number + 1};
  }

  Pending recv(Seat from, Bytes bytes, Channel channel) override {
    std::uint32_t number = new_operation(from, bytes, channel);
    if (is_aborted_) return {number + 1};
    wake_if_armed();
    if (from == group_.me) {
      own_receives_.push_back(number);
      match_own();
      return {number + 1};
    }
    std::size_t index = index_of(from, channel);
    stream_at(index).recv(number);
    activate(index);
    return {number + 1};
  }

  Progress poll(Pending pending) override {
    std::uint32_t number = pending.ticket - 1;
    if (number >= operations_.size() || operations_[number].state == State::unused)
      panic("a message was polled after it was done");
    for (int turn = 0; turn < most_turns && operations_[number].state == State::waiting && move_all(); ++turn) {
    }
    Operation& operation = operations_[number];
    if (operation.state == State::waiting) return Progress::pending;
    Progress progress = operation.state == State::done ? Progress::done : Progress::failed;
    if (progress == Progress::failed && !is_aborted_) explain(operation);
    operation.state = State::unused;
    unused_.push_back(number);
    return progress;
  }

  const Error& failure() const override { return *failure_; }
  NativeCollectives* native() noexcept override { return nullptr; }

  void arm() noexcept override {
    for (std::size_t index : active_) {
      Stream& stream = stream_at(index);
      if (stream.is_open()) {
        if (!stream.is_idle()) net_->arm(stream.descriptor(), stream.has_to_send());
        continue;
      }
      // connections::NetPeers wakes the engine when the connection is made. If the peer ends without making it, only
      // the other connections to the peer show that, so they are armed.
      for (Stream* sibling : open_siblings(index)) net_->arm(sibling->descriptor(), false);
    }
    is_armed_ = true;
  }

  // Only this thread's system calls touch the caller's memory. So nothing touches that memory after this function has
  // returned.
  void abort(const Error& reason) noexcept override {
    if (is_aborted_) return;
    is_aborted_ = true;
    failure_ = reason;
    for (Operation& operation : operations_)
      if (operation.state == State::waiting) operation.state = State::failed;
    for (auto& stream : streams_) {
      if (!stream) continue;
      stream->send_abort(reason.message);
      close(*stream);
    }
    own_sends_.clear();
    own_receives_.clear();
    active_.clear();
  }

 private:
  // All messages of a channel use the same stream on both ends, because their order must be kept.
  static std::size_t index_of(Seat seat, Channel channel) {
    return static_cast<std::size_t>(seat.value) * streams_per_peer + channel.chunk % streams_per_peer;
  }
  static Seat seat_of(std::size_t index) { return Seat{static_cast<std::int32_t>(index / streams_per_peer)}; }
  Stream& stream_at(std::size_t index) {
    auto& stream = streams_.at(index);
    if (!stream) stream = std::make_unique<Stream>(operations_);
    return *stream;
  }
  std::vector<Stream*> open_siblings(std::size_t index) const {
    std::vector<Stream*> siblings;
    std::size_t first = index - index % streams_per_peer;
    for (std::size_t at = first; at < first + streams_per_peer; ++at)
      if (at != index && streams_[at] && streams_[at]->is_open()) siblings.push_back(streams_[at].get());
    return siblings;
  }

  std::uint32_t new_operation(Seat peer, Bytes bytes, Channel channel) {
    if (unused_.empty()) {
      operations_.emplace_back();
      unused_.reserve(operations_.capacity());
      unused_.push_back(static_cast<std::uint32_t>(operations_.size() - 1));
    }
    std::uint32_t number = unused_.back();
    unused_.pop_back();
    operations_[number] = {
        is_aborted_ ? State::failed : State::waiting, peer, bytes.data(), bytes.size(), channel, bytes.size()};
    return number;
  }

  void activate(std::size_t index) {
    if (std::find(active_.begin(), active_.end(), index) == active_.end()) active_.push_back(index);
  }

  // Gives every stream that has something to do one turn. Returns true if anything moved.
  bool move_all() {
    bool has_moved = false;
    for (std::size_t at = 0; at < active_.size();) {
      Stream& stream = stream_at(active_[at]);
      if (!stream.is_open()) has_moved |= open(active_[at], stream);
      if (stream.is_open()) {
        has_moved |= stream.push();
        // An engine that never sleeps does not arm sockets. Therefore this call tells connections::NetPeers that the
        // connection stalls.
        if (stream.blocked_looks() == many_looks) net_->arm(stream.descriptor(), true);
        has_moved |= stream.pull();
      }
      if (!stream.is_idle()) {
        ++at;
        continue;
      }
      active_[at] = active_.back();
      active_.pop_back();
    }
    if (has_moved) wake_if_armed();
    return has_moved;
  }

  // If something moved or began in the last look before a sleep, other sockets may matter now than the armed ones.
  // Therefore the engine does not sleep yet.
  void wake_if_armed() {
    if (std::exchange(is_armed_, false)) wake_->post();
  }

  // Returns true if the connection was made or has failed.
  bool open(std::size_t index, Stream& stream) {
    const Rank peer = group_.rank_at(seat_of(index));
    // If the peer dials and has ended, it will not dial any more. This function asks for the end first and for the
    // connection afterwards: a connection that the peer made before its end is then there. If this rank dials,
    // connections::NetPeers reports a failure.
    std::optional<Stream::End> end;
    for (const Stream* sibling : open_siblings(index))
      if (peer > world_.rank && sibling->is_left()) end = sibling->end().value_or(Stream::End{});
    auto connection = net_->connection(peer, name_ + "/" + std::to_string(index % streams_per_peer));
    if (connection && *connection) {
      stream.open(std::move(**connection));
      return true;
    }
    if (!connection) {
      unreachable_.emplace_back(seat_of(index), std::move(connection.error()));
      stream.fail({});
      return true;
    }
    if (end) stream.fail(std::move(*end));
    return end.has_value();
  }

  void close(Stream& stream) {
    posix::FileDescriptor socket = stream.take_socket();
    if (!socket) return;
    // If bytes stayed unread, the kernel would reset the connection and drop bytes that the peer has not read yet.
    char unread[4096];
    for (int turn = 0; turn < 1000 && ::recv(socket.get(), unread, sizeof unread, MSG_DONTWAIT) > 0; ++turn) {
    }
    net_->disarm(socket.get());
    ::shutdown(socket.get(), SHUT_RDWR);  // close() alone would not end a connection of which a forked child has a copy
  }

  // Delivers messages that this seat has sent to itself.
  void match_own() {
    for (std::size_t at = 0; at < own_receives_.size(); ++at) {
      Operation& receive = operations_[own_receives_[at]];
      auto found = std::find_if(own_sends_.begin(), own_sends_.end(),
                                [&](std::uint32_t number) { return operations_[number].channel == receive.channel; });
      if (found == own_sends_.end()) continue;
      Operation& send = operations_[*found];
      receive.actual_bytes = send.bytes;
      bool fits = send.bytes == receive.bytes;
      if (fits && send.bytes > 0) std::memcpy(receive.data, send.data, send.bytes);
      receive.state = fits ? State::done : State::failed;
      send.state = State::done;
      own_sends_.erase(found);
      own_receives_.erase(own_receives_.begin() + static_cast<std::ptrdiff_t>(at));
      return match_own();
    }
  }

  // Records why the operation failed.
  void explain(const Operation& operation) {
    const std::string peer = describe(world_, group_.rank_at(operation.peer));
    if (operation.actual_bytes != operation.bytes) {
      failure_ =
          Error(ErrorCode::mismatch, "expected a message of " + std::to_string(operation.bytes) + " bytes from " +
                                         peer + ", found one of " + std::to_string(operation.actual_bytes) +
                                         ": the ranks run different operations");
      return;
    }
    for (const auto& [seat, error] : unreachable_) {
      if (seat != operation.peer) continue;
      failure_ = error;
      return;
    }
    const Stream& stream = stream_at(index_of(operation.peer, operation.channel));
    if (!stream.end()) panic("a message over TCP failed without a reason");
    Stream::End end = *stream.end();
    if (stream.is_open() && net_->has_fallen_silent(stream.descriptor())) end.error = ETIMEDOUT;
    failure_ = Error(ErrorCode::peer_lost, peer + " " + what_happened(end) + " (link '" + name_ + "')");
    failure_->is_a_consequence = end.abort_reason.empty() && is_closed(end);
  }

  static bool is_closed(const Stream::End& end) {
    return end.error == 0 || end.error == EPIPE || end.error == ECONNRESET;
  }
  static std::string what_happened(const Stream::End& end) {
    if (!end.abort_reason.empty()) return "has given up: " + end.abort_reason;
    if (is_closed(end)) return "has closed its TCP connection during an operation; its own output tells why";
    switch (end.error) {
      case ETIMEDOUT:
      case EHOSTUNREACH:
      case ENETUNREACH:
        return "gives no sign of life: its host or the network to it is down (HOROVOD_PEER_TIMEOUT sets how long that "
               "may last)";
      default: return "is lost, its TCP connection broke: " + errno_text(end.error);
    }
  }

  const World& world_;
  const std::shared_ptr<connections::NetPeers> net_;
  posix::WaitWord* const wake_;
  const Group group_;
  const std::string name_;
  std::vector<Operation> operations_;  // the operation of ticket - 1
  std::vector<std::uint32_t> unused_;
  std::vector<std::unique_ptr<Stream>> streams_;  // streams by index_of(); null until first used
  std::vector<std::size_t> active_;               // the streams that have something to send or wait for something
  std::vector<std::uint32_t> own_sends_, own_receives_;
  std::vector<std::pair<Seat, Error>> unreachable_;
  std::optional<Error> failure_;
  bool is_aborted_ = false;
  bool is_armed_ = false;
};

}  // namespace

std::unique_ptr<Link> make_link(const Surroundings& surroundings, const Group& group, std::string name) {
  return std::make_unique<TcpLink>(surroundings, group, std::move(name));
}

}  // namespace hvd::transport::tcp
