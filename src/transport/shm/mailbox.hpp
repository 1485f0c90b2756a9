#pragma once
// Messages between the seats of a link. Each ordered pair of seats has a ring in shared memory.
//
//  1. Messages from one seat to another travel in the order of the sends: first a header (channel, length), then the
//     bytes as the ring gets free. So messages of any size work.
//  2. A receive gets a message of its channel. Messages of the same channel are received in the order of the sends.
//  3. A message at the head of its ring stays there if no receive from its sender waits; the sender then waits too. If
//     a receive waits for a later message, the message at the head moves into private memory.
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
  // After poll() has returned done or failed, the ticket is not valid any more.
  Progress poll(Pending pending);
  const Error& failure() const { return *failure_; }
  // Makes every pending operation fail. From now on the caller's memory is not touched.
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
    std::size_t actual_bytes = 0;  // size of a message that did not fit its receive
  };
  struct Unexpected {
    Channel channel;
    Buffer bytes;
  };
  struct Outgoing {
    RingHead* head = nullptr;
    std::byte* ring = nullptr;
    std::uint64_t written = 0;
    std::vector<std::uint32_t> queue;  // sends that wait, oldest first
    std::size_t sent = 0;              // number of bytes of the first operation that were sent, including the header
  };
  struct Incoming {
    RingHead* head = nullptr;
    std::byte* ring = nullptr;
    std::uint64_t read = 0;
    std::vector<std::uint32_t> waiting;  // receives that wait, oldest first
    bool is_inside = false;              // a header was read and its message is still coming in
    Header header{};
    std::size_t received = 0;
    std::int64_t operation = -1;  // the receive that gets the message; -1: `unexpected.back()` gets it
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
  std::vector<Outgoing> outgoing_;  // one for each seat
  std::vector<Incoming> incoming_;  // one for each seat
  int active_ = 0;                  // number of operations that are not settled
  std::optional<Error> failure_;
};

}  // namespace hvd::transport::shm
