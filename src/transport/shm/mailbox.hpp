#pragma once
// Messages between the seats of a link, through a ring of shared memory per ordered pair.
//
//  1. Messages of one seat to another travel in the order of the sends: a header (channel, length), then the bytes, as
//     room comes free; so a message of any size passes.
//  2. Receives match by channel; messages of equal channel in the order sent.
//  3. A message that is at the head of its ring and not waited for stays there while nothing else is expected from its
//     sender (which then waits), and moves into private memory as soon as a receive waits for what comes behind it.
//  4. Every poll() moves all messages of the link.
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/task.hpp"
#include "transport/shm/link_state.hpp"
#include "transport/transport.hpp"

namespace hvd::transport::shm {

class Mailbox {
 public:
  explicit Mailbox(LinkState& link);

  Pending send(Seat to, ConstBytes bytes, Channel channel);
  Pending recv(Seat from, Bytes bytes, Channel channel);
  // After done or failed the ticket is no longer valid.
  Progress poll(Pending pending);
  const Error& failure() const { return *failure_; }
  // Everything pending fails; from now on the caller's memory is not touched.
  void abort(const Error& reason);

 private:
  struct Header {
    std::uint64_t batch;
    std::uint64_t bytes;
    std::uint32_t chunk;
    std::uint16_t stage;
    std::uint16_t unused;
  };
  struct Operation {
    enum class State : std::uint8_t { unused, waiting, done, failed } state = State::unused;
    const std::byte* source = nullptr;
    std::byte* destination = nullptr;
    std::size_t bytes = 0;
    Channel channel;
    std::size_t actual_bytes = 0;  // of a message that did not fit its receive
  };
  struct Unexpected {
    Channel channel;
    Buffer bytes;
  };
  struct Outgoing {
    RingHead* head = nullptr;
    std::byte* ring = nullptr;
    std::uint64_t written = 0;
    std::vector<std::uint32_t> queue;  // operations, oldest first
    std::size_t sent = 0;              // of the first, header included
  };
  struct Incoming {
    RingHead* head = nullptr;
    std::byte* ring = nullptr;
    std::uint64_t read = 0;
    std::vector<std::uint32_t> waiting;  // operations, oldest first
    bool is_inside = false;              // a header has been read; its message follows
    Header header{};
    std::size_t received = 0;
    std::int64_t operation = -1;  // the receive that the message goes to; -1: `unexpected.back()`
    std::vector<Unexpected> unexpected;
  };

  std::uint32_t new_operation();
  void move_all();
  void push(int to, Outgoing& out);
  void pull(int from, Incoming& in);
  bool read_header(int from, Incoming& in);
  void end_message(Incoming& in);
  std::int64_t take_waiting(Incoming& in, const Channel& channel);
  void settle(std::uint32_t operation, std::size_t actual_bytes);
  std::size_t copy_in(Outgoing& out, const std::byte* from, std::size_t bytes);
  std::size_t copy_out(Incoming& in, std::byte* to, std::size_t bytes);

  LinkState& link_;
  const std::size_t ring_bytes_;
  std::vector<Operation> operations_;
  std::vector<std::uint32_t> unused_;
  std::vector<Outgoing> outgoing_;  // by seat
  std::vector<Incoming> incoming_;  // by seat
  int active_ = 0;                  // operations not yet settled
  std::optional<Error> failure_;
};

}  // namespace hvd::transport::shm
