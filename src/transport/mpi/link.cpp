#include "transport/mpi/link.hpp"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <map>
#include <string_view>

#include "base/log.hpp"
#include "base/panic.hpp"
#include "connections/mpi_peers.hpp"

namespace hvd::transport::over_mpi {
namespace {

using mpi::Completion;
using mpi::Request;

// The number of looks after the last message. Naps grow to a millisecond (runtime/engine), so all looks together take
// some tens of milliseconds.
constexpr int looks_afterwards = 64;
// After the link was aborted: how long a message that a peer has begun to send may take to arrive, and how long this
// rank helps its peers to receive what it has sent.
constexpr auto time_to_receive = std::chrono::seconds(5);
constexpr auto time_to_send = std::chrono::seconds(1);

// Returns the largest number of ranks that the group has on any node.
int ranks_per_node(const World& world, const Group& group) {
  std::map<std::string_view, int> counts;
  int most = 1;
  for (Rank rank : group.ranks) most = std::max(most, ++counts[world.member(rank).node]);
  return most;
}

}  // namespace

int tag_of(Channel channel, int highest_tag) noexcept {
  int bits = std::min(static_cast<int>(std::bit_width(static_cast<unsigned>(highest_tag) + 1)) - 1, 30);
  constexpr int stage_bits = 3;
  int chunk_bits = (bits - stage_bits) / 2, batch_bits = bits - stage_bits - chunk_bits;
  auto low = [](std::uint64_t value, int count) { return static_cast<unsigned>(value & ((1ull << count) - 1)); };
  return static_cast<int>(low(channel.batch.value, batch_bits) << (stage_bits + chunk_bits) |
                          low(channel.chunk, chunk_bits) << stage_bits | low(channel.stage, stage_bits));
}

MpiLink::MpiLink(const Surroundings& surroundings, Group group, std::unique_ptr<mpi::Communicator> communicator,
                 std::size_t piece_bytes)
    : surroundings_(surroundings),
      group_(std::move(group)),
      communicator_(std::move(communicator)),
      piece_bytes_(piece_bytes),
      collectives_(*communicator_, surroundings.ask<connections::MpiPeers>()->calls(),
                   ranks_per_node(*surroundings.world, group_)) {}

MpiLink::~MpiLink() {
  if (!aborted_) abort(failure_);
  bool is_orderly = is_at_rest_ && failure_.code == ErrorCode::shut_down;
  if (is_orderly) communicator_->release();
  else hvd::mpi::Process::leave_open();
}

std::uint32_t MpiLink::open(Operation::Kind kind, Seat peer, std::size_t bytes) {
  std::uint32_t ticket;
  if (free_tickets_.empty()) {
    ticket = static_cast<std::uint32_t>(operations_.size());
    operations_.emplace_back();
    free_tickets_.reserve(operations_.size());
  } else {
    ticket = free_tickets_.back();
    free_tickets_.pop_back();
  }
  Operation& operation = operations_[ticket];
  operation.kind = kind;
  operation.failed = false;
  operation.peer = peer;
  operation.bytes = bytes;
  operation.next = 0;
  operation.requests.clear();
  under_way_.begin();
  return ticket;
}

// A message without bytes is sent too.
template <typename Post>
void MpiLink::post(std::uint32_t ticket, Post post_piece) {
  Operation& operation = operations_[ticket];
  if (aborted_) return;
  for (std::size_t begin = 0;; begin += piece_bytes_) {
    Request request{};
    if (Status posted = post_piece(begin, std::min(piece_bytes_, operation.bytes - begin), request); !posted) {
      fail(operation, std::move(posted.error()));
      return;
    }
    operation.requests.push_back(request);
    if (operation.bytes - begin <= piece_bytes_) return;
  }
}

Pending MpiLink::send(Seat to, ConstBytes bytes, Channel channel) {
  std::uint32_t ticket = open(Operation::Kind::send, to, bytes.size());
  int tag = tag_of(channel, communicator_->highest_tag());
  post(ticket, [&](std::size_t begin, std::size_t count, Request& request) {
    return communicator_->isend(to.value, bytes.subspan(begin, count), tag, request);
  });
  return {ticket};
}

Pending MpiLink::recv(Seat from, Bytes bytes, Channel channel) {
  std::uint32_t ticket = open(Operation::Kind::recv, from, bytes.size());
  int tag = tag_of(channel, communicator_->highest_tag());
  post(ticket, [&](std::size_t begin, std::size_t count, Request& request) {
    return communicator_->irecv(from.value, bytes.subspan(begin, count), tag, request);
  });
  return {ticket};
}

Progress MpiLink::poll(Pending pending) {
  Operation& operation = operations_.at(pending.ticket);
  if (operation.kind == Operation::Kind::none) panic("a message was polled after it was done");
  Progress progress = aborted_ || operation.failed ? Progress::failed : look_at(operation);
  if (progress == Progress::pending) return progress;
  // A failed operation may still have requests under way. abort() ends them.
  if (operation.next == operation.requests.size()) {
    operation.kind = Operation::Kind::none;
    free_tickets_.push_back(pending.ticket);
    under_way_.end();
    if (!under_way_.any()) afterglow_ = looks_afterwards;
  }
  return progress;
}

std::size_t MpiLink::bytes_of_piece(const Operation& operation, std::size_t piece) const {
  return std::min(piece_bytes_, operation.bytes - piece * piece_bytes_);
}

Progress MpiLink::look_at(Operation& operation) {
  for (; operation.next < operation.requests.size(); ++operation.next) {
    std::size_t expected = bytes_of_piece(operation, operation.next), received = expected;
    switch (communicator_->test(operation.requests[operation.next], received)) {
      case Completion::pending: return Progress::pending;
      case Completion::failed: {
        ++operation.next;  // MPI has finished this request
        Error error = communicator_->failure();
        if (error.code == ErrorCode::mismatch)
          error.message = "a message of more than the expected " + std::to_string(expected) + " bytes came from " +
                          describe(*surroundings_.world, group_.rank_at(operation.peer)) +
                          ": the ranks run different operations (" + error.message + ")";
        fail(operation, std::move(error));
        return Progress::failed;
      }
      case Completion::cancelled:
      case Completion::done: break;
    }
    if (operation.kind == Operation::Kind::recv && received != expected) {
      ++operation.next;
      fail(operation, {ErrorCode::mismatch,
                       "expected a message of " + std::to_string(operation.bytes) + " bytes from " +
                           describe(*surroundings_.world, group_.rank_at(operation.peer)) + ", found one of " +
                           std::to_string(received) + ": the ranks run different operations"});
      return Progress::failed;
    }
  }
  return Progress::done;
}

void MpiLink::fail(Operation& operation, Error error) {
  operation.failed = true;
  failure_ = std::move(error);
}

bool MpiLink::needs_polling() noexcept {
  if (aborted_) return false;
  if (under_way_.any() || collectives_.under_way().any()) return true;
  if (collectives_.has_just_ended()) afterglow_ = looks_afterwards;
  if (afterglow_ == 0) return false;
  --afterglow_;
  communicator_->progress();
  return true;
}

bool MpiLink::progresses_only_when_polled() noexcept {
  return !aborted_ && (under_way_.is_moving() || collectives_.under_way().is_moving());
}

void MpiLink::abort(const Error& reason) noexcept {
  if (aborted_) return;
  aborted_ = true;
  failure_ = reason;
  bool was_busy = collectives_.abandon(reason);
  for (Operation& operation : operations_)
    if (operation.kind == Operation::Kind::recv)
      for (std::size_t at = operation.next; at < operation.requests.size(); ++at)
        communicator_->cancel(operation.requests[at]);
  is_at_rest_ = drain() && !was_busy;
}

// Returns true if all requests of the operation have ended.
bool MpiLink::settle(Operation& operation) {
  for (; operation.next < operation.requests.size(); ++operation.next) {
    std::size_t received = 0;
    if (communicator_->test(operation.requests[operation.next], received) == Completion::pending) return false;
  }
  return true;
}

// Returns true if nothing is under way any more. Sends that no peer receives are ignored, because MPI only reads their
// borrowed memory.
bool MpiLink::drain() {
  Deadline receive_by = Deadline::after(time_to_receive), send_by = Deadline::after(time_to_send);
  for (;;) {
    const Operation* receiving = nullptr;
    bool is_sending = false;
    for (Operation& operation : operations_) {
      if (operation.kind == Operation::Kind::none || settle(operation)) continue;
      if (operation.kind == Operation::Kind::recv) receiving = &operation;
      else is_sending = true;
    }
    if (receiving == nullptr && (!is_sending || send_by.passed())) return !is_sending;
    if (receiving != nullptr && receive_by.passed())
      log::write(log::Level::fatal,
                 "a message from " + describe(*surroundings_.world, group_.rank_at(receiving->peer)) +
                     " had begun to arrive when the operation failed (" + failure_.message +
                     "), and MPI cannot take back the memory it is written to: this process ends, since that memory "
                     "could change at any time");
    ::sched_yield();
  }
}

}  // namespace hvd::transport::over_mpi
