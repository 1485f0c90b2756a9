// Moves bytes between ranks that are threads of one process. The receiver copies them from the sender's memory.
//
// The life of a message:
//  1. send() puts a letter that points to the sender's bytes into the mailbox of (link, receiver).
//  2. The receiver has a recv() of the same (sender, channel). Its poll() takes the letter out and copies the bytes.
//  3. The sender's poll() sees that the letter was delivered. The bytes then belong to the caller again.
// A send is done only after its receiver has asked for it. So an algorithm that wrongly relies on buffering hangs with
// this transport first.
#include <memory>
#include <string>
#include <vector>

#include "connections/thread_hub.hpp"
#include "transport/transport.hpp"

namespace hvd::transport {

namespace {

class InprocLink final : public Link {
 public:
  InprocLink(Surroundings surroundings, Group group, std::string name)
      : surroundings_(std::move(surroundings)),
        hub_(*surroundings_.ask<connections::ThreadHub>()),
        group_(std::move(group)),
        name_(std::move(name)),
        line_(hub_.open_line(name_ + "#" + std::to_string(surroundings_.world->epoch), group_)) {}
  ~InprocLink() override { leave(); }

  const Group& group() const override { return group_; }

  Pending send(Seat to, ConstBytes bytes, Channel channel) override {
    std::uint32_t ticket = new_ticket();
    Operation& operation = *operations_[ticket];
    operation.kind = Kind::send;
    operation.peer = to;
    operation.letter.from = group_.me;
    operation.letter.channel = channel;
    operation.letter.bytes = bytes;
    if (!aborted_) hub_.post(*line_, to, operation.letter);
    return {ticket};
  }

  Pending recv(Seat from, Bytes bytes, Channel channel) override {
    std::uint32_t ticket = new_ticket();
    Operation& operation = *operations_[ticket];
    operation.kind = Kind::recv;
    operation.peer = from;
    operation.letter.channel = channel;
    operation.into = bytes;
    return {ticket};
  }

  Progress poll(Pending pending) override {
    Operation& operation = *operations_.at(pending.ticket);
    Progress progress = check(operation);
    if (progress == Progress::pending) return progress;
    if (progress == Progress::failed && operation.kind == Kind::send && !aborted_)
      hub_.withdraw(*line_, operation.peer, operation.letter);
    operation.kind = Kind::none;
    free_tickets_.push_back(pending.ticket);
    return progress;
  }

  const Error& failure() const override { return failure_; }
  NativeCollectives* native() noexcept override { return nullptr; }

  void abort(const Error& reason) noexcept override {
    if (aborted_) return;
    failure_ = reason;
    leave();
  }

 private:
  enum class Kind : std::uint8_t { none, send, recv };
  struct Operation {
    Kind kind = Kind::none;
    Seat peer;
    Bytes into;                             // used by a receive
    connections::ThreadHub::Letter letter;  // used by a send; of it a receive uses only the channel
  };

  std::uint32_t new_ticket() {
    if (free_tickets_.empty()) {
      operations_.push_back(std::make_unique<Operation>());  // the mailbox keeps its address
      return static_cast<std::uint32_t>(operations_.size() - 1);
    }
    std::uint32_t ticket = free_tickets_.back();
    free_tickets_.pop_back();
    return ticket;
  }

  Progress check(Operation& operation) {
    if (operation.kind == Kind::none) panic("a message was polled after it was done");
    if (aborted_) return Progress::failed;
    if (hub_.has_deaths() && find_death()) return Progress::failed;
    if (operation.kind == Kind::send) {
      if (operation.letter.is_delivered()) return Progress::done;
    } else {
      std::size_t actual_bytes = 0;
      switch (hub_.take(*line_, group_.me, operation.peer, operation.letter.channel, operation.into, actual_bytes)) {
        case connections::ThreadHub::Taken::delivered: return Progress::done;
        case connections::ThreadHub::Taken::wrong_size:
          failure_ =
              Error(ErrorCode::mismatch, "expected a message of " + std::to_string(operation.into.size()) +
                                             " bytes from " + describe_peer(operation.peer) + ", found one of " +
                                             std::to_string(actual_bytes) + ": the ranks run different operations");
          return Progress::failed;
        case connections::ThreadHub::Taken::not_here: break;
      }
    }
    const auto& peer = line_->mailboxes[static_cast<std::size_t>(operation.peer.value)];
    if (peer.is_closed.load(std::memory_order_acquire)) {
      failure_ = Error(ErrorCode::peer_lost, describe_peer(operation.peer) + " has closed the link '" + name_ +
                                                 "' while this rank waited for it: " + peer.why_closed);
      return Progress::failed;
    }
    return Progress::pending;
  }

  bool find_death() {
    for (std::size_t seat = 0; seat < group_.ranks.size(); ++seat) {
      if (!hub_.is_dead(group_.ranks[seat])) continue;
      failure_ = Error(ErrorCode::peer_lost, describe_peer(Seat{static_cast<std::int32_t>(seat)}) +
                                                 " has ended during an operation of the link '" + name_ +
                                                 "'; its own output tells why");
      return true;
    }
    return false;
  }

  std::string describe_peer(Seat seat) const { return describe(*surroundings_.world, group_.rank_at(seat)); }

  void leave() noexcept {
    if (aborted_) return;
    aborted_ = true;
    for (auto& operation : operations_)
      if (operation->kind == Kind::send) hub_.withdraw(*line_, operation->peer, operation->letter);
    hub_.close(*line_, group_.me, failure_.message);
  }

  const Surroundings surroundings_;
  connections::ThreadHub& hub_;
  const Group group_;
  const std::string name_;
  const std::shared_ptr<connections::ThreadHub::Line> line_;
  std::vector<std::unique_ptr<Operation>> operations_;  // the operation of each ticket
  std::vector<std::uint32_t> free_tickets_;
  Error failure_{ErrorCode::shut_down, "the link was closed"};
  bool aborted_ = false;
};

class InprocConnecting final : public Connecting {
 public:
  explicit InprocConnecting(std::unique_ptr<Link> link) : link_(std::move(link)) {}
  // The mailboxes keep letters until they are taken, so no rank has to be there.
  Progress step() override { return Progress::done; }
  std::unique_ptr<Link> take() override { return std::move(link_); }
  const Error& failure() const override { panic("connecting over inproc cannot fail"); }

 private:
  std::unique_ptr<Link> link_;
};

class Inproc final : public Transport {
 public:
  explicit Inproc(const Surroundings& surroundings) : surroundings_(surroundings) {
    if (surroundings_.ask<connections::ThreadHub>() && surroundings_.world != nullptr && surroundings_.wake != nullptr)
      surroundings_.ask<connections::ThreadHub>()->set_wake(surroundings_.world->rank, surroundings_.wake);
  }
  ~Inproc() override {
    if (surroundings_.ask<connections::ThreadHub>() && surroundings_.world != nullptr && surroundings_.wake != nullptr)
      surroundings_.ask<connections::ThreadHub>()->set_wake(surroundings_.world->rank, nullptr);
  }

  const char* name() const override { return "inproc"; }

  bool reaches(const Group& group, DeviceKind kind) const override {
    if (!surroundings_.ask<connections::ThreadHub>() || surroundings_.world == nullptr || kind != DeviceKind::host)
      return false;
    for (Rank rank : group.ranks)
      if (rank.value < 0 || rank.value >= surroundings_.ask<connections::ThreadHub>()->ranks()) return false;
    return true;
  }

  Result<std::unique_ptr<Connecting>> connect(const Group& group, std::string_view name, Exchange&) override {
    if (!group.has_me() || !reaches(group, DeviceKind::host))
      return Error(ErrorCode::invalid_argument,
                   "the link '" + std::string(name) +
                       "' was asked of inproc by a rank that is no member of its group, or for "
                       "ranks that are not threads of this process; ask reaches() first");
    auto link = std::make_unique<InprocLink>(surroundings_, group, std::string(name));
    return std::unique_ptr<Connecting>(std::make_unique<InprocConnecting>(std::move(link)));
  }

 private:
  const Surroundings surroundings_;
};

}  // namespace

std::unique_ptr<Transport> make_inproc(const Surroundings& surroundings) {
  return std::make_unique<Inproc>(surroundings);
}

}  // namespace hvd::transport
