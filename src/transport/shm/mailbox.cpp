#include "transport/shm/mailbox.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/panic.hpp"
#include "devices/host/host_kernels.hpp"

namespace hvd::transport::shm {
namespace {

// The most bytes that are moved before the other end can see them in the ring. A limit lets both ends work at the same
// time.
constexpr std::size_t stride_bytes = 16 << 10;

}  // namespace

Mailbox::Mailbox(LinkState& link)
    : link_(link),
      ring_bytes_(link.area.shape().ring_bytes),
      outgoing_(static_cast<std::size_t>(link.size)),
      incoming_(static_cast<std::size_t>(link.size)) {
  for (int seat = 0; seat < link.size; ++seat) {
    Outgoing& out = outgoing_[static_cast<std::size_t>(seat)];
    out.head = link.area.ring_head(link.me, seat);
    out.ring = link.area.ring_data(link.me, seat);
    Incoming& in = incoming_[static_cast<std::size_t>(seat)];
    in.head = link.area.ring_head(seat, link.me);
    in.ring = link.area.ring_data(seat, link.me);
  }
}

Pending Mailbox::send(Seat to, ConstBytes bytes, Channel channel) {
  std::uint32_t index = new_operation();
  Operation& operation = operations_[index];
  operation.source = bytes.data();
  operation.bytes = bytes.size();
  operation.channel = channel;
  Outgoing& out = outgoing_.at(static_cast<std::size_t>(to.value));
  out.queue.push_back(index);
  if (!link_.aborted) push(to.value, out);
  return {index + 1};
}

Pending Mailbox::recv(Seat from, Bytes bytes, Channel channel) {
  std::uint32_t index = new_operation();
  Operation& operation = operations_[index];
  operation.destination = bytes.data();
  operation.bytes = bytes.size();
  operation.channel = channel;
  Incoming& in = incoming_.at(static_cast<std::size_t>(from.value));
  // The last unexpected message may not have arrived completely.
  auto complete = in.unexpected.end() - (in.is_inside && in.operation < 0 ? 1 : 0);
  auto found = std::find_if(in.unexpected.begin(), complete, [&](const Unexpected& u) { return u.channel == channel; });
  if (found != complete) {
    std::size_t actual = found->bytes.size();
    if (actual == bytes.size() && actual > 0) std::memcpy(bytes.data(), found->bytes.data(), actual);
    in.unexpected.erase(found);
    settle(index, actual);
  } else {
    in.waiting.push_back(index);
    if (!link_.aborted) pull(from.value, in);
  }
  return {index + 1};
}

Progress Mailbox::poll(Pending pending) {
  std::size_t index = std::size_t{pending.ticket} - 1;
  if (index >= operations_.size() || operations_[index].state == Operation::State::unused) {
    panic("poll() of a send or receive that is over or never was");
  }
  if (operations_[index].state == Operation::State::waiting) {
    if (link_.threads != nullptr) link_.notice_dead_threads();
    if (link_.aborted) abort(*link_.aborted);
    else move_all();
  }
  Operation& operation = operations_[index];
  if (operation.state == Operation::State::waiting) return Progress::pending;
  Progress progress = operation.state == Operation::State::done ? Progress::done : Progress::failed;
  if (progress == Progress::failed && !link_.aborted) {
    failure_ = Error(ErrorCode::mismatch, "a message of " + std::to_string(operation.actual_bytes) +
                                              " bytes came where " + std::to_string(operation.bytes) +
                                              " bytes were expected: the ranks do not run the same operation");
  }
  operation.state = Operation::State::unused;
  unused_.push_back(static_cast<std::uint32_t>(index));
  return progress;
}

void Mailbox::abort(const Error& reason) {
  failure_ = reason;
  for (Operation& operation : operations_) {
    if (operation.state == Operation::State::waiting) operation.state = Operation::State::failed;
  }
  for (Outgoing& out : outgoing_) out.queue.clear();
  for (Incoming& in : incoming_) {
    in.waiting.clear();
    in.operation = -1;
    in.is_inside = false;
    in.unexpected.clear();
  }
  active_ = 0;
}

std::uint32_t Mailbox::new_operation() {
  if (unused_.empty()) {
    operations_.emplace_back();
    unused_.reserve(operations_.capacity());
    unused_.push_back(static_cast<std::uint32_t>(operations_.size() - 1));
  }
  std::uint32_t index = unused_.back();
  unused_.pop_back();
  operations_[index] = Operation{};
  operations_[index].state = Operation::State::waiting;
  ++active_;
  return index;
}

void Mailbox::move_all() {
  if (active_ == 0) return;
  for (int seat = 0; seat < link_.size; ++seat) {
    Outgoing& out = outgoing_[static_cast<std::size_t>(seat)];
    Incoming& in = incoming_[static_cast<std::size_t>(seat)];
    for (bool again = true; again;) {
      std::uint64_t before = in.read;
      if (!out.queue.empty()) push(seat, out);
      if (!in.waiting.empty() || in.is_inside) pull(seat, in);
      // If this seat sends to itself, it must try again after it has made room in the ring, because nobody wakes it for
      // that.
      again = seat == link_.me && in.read != before && !out.queue.empty();
    }
  }
}

void Mailbox::push(int to, Outgoing& out) {
  std::size_t finished = 0;
  while (finished < out.queue.size()) {
    Operation& operation = operations_[out.queue[finished]];
    if (out.sent < sizeof(Header)) {
      std::uint64_t room = ring_bytes_ - (out.written - out.head->read.value.load(std::memory_order_acquire));
      if (room < sizeof(Header)) break;
      const Channel& channel = operation.channel;
      Header header{channel.batch.value, operation.bytes, channel.chunk, channel.stage, 0};
      copy_in(out, reinterpret_cast<const std::byte*>(&header), sizeof header);
      out.sent = sizeof(Header);
    }
    std::size_t done = out.sent - sizeof(Header);
    std::size_t moved = copy_in(out, operation.source + done, std::min(stride_bytes, operation.bytes - done));
    out.sent += moved;
    link_.post.post_to(to, out.head->written.value, out.written);
    if (done + moved < operation.bytes) {
      if (moved == 0) break;
      continue;
    }
    settle(out.queue[finished], operation.bytes);
    out.sent = 0;
    ++finished;
  }
  out.queue.erase(out.queue.begin(), out.queue.begin() + static_cast<std::ptrdiff_t>(finished));
}

void Mailbox::pull(int from, Incoming& in) {
  while (!in.waiting.empty() || in.is_inside) {
    if (!in.is_inside && !read_header(from, in)) return;
    std::size_t left = in.header.bytes - in.received;
    std::size_t moved = 0;
    if (left > 0) {
      std::byte* to = nullptr;
      if (in.operation < 0) {
        to = in.unexpected.back().bytes.data() + in.received;
      } else if (Operation& operation = operations_[static_cast<std::size_t>(in.operation)];
                 operation.bytes == in.header.bytes) {
        to = operation.destination + in.received;
      }
      moved = copy_out(in, to, std::min(stride_bytes, left));
      in.received += moved;
      if (moved > 0) link_.post.post_to(from, in.head->read.value, in.read);
    }
    if (in.received == in.header.bytes) end_message(in);
    else if (moved == 0) return;
  }
}

// Reads the header of the next message and finds the receive for it. Returns false if no message has come.
bool Mailbox::read_header(int from, Incoming& in) {
  std::uint64_t available = in.head->written.value.load(std::memory_order_acquire) - in.read;
  if (available < sizeof(Header)) return false;
  copy_out(in, reinterpret_cast<std::byte*>(&in.header), sizeof(Header));
  in.is_inside = true;
  in.received = 0;
  Channel channel{Sequence{in.header.batch}, in.header.stage, in.header.chunk};
  in.operation = take_waiting(in, channel);
  if (in.operation < 0) in.unexpected.push_back({channel, Buffer(in.header.bytes)});
  link_.post.post_to(from, in.head->read.value, in.read);
  return true;
}

void Mailbox::end_message(Incoming& in) {
  in.is_inside = false;
  if (in.operation >= 0) {
    settle(static_cast<std::uint32_t>(in.operation), in.header.bytes);
    in.operation = -1;
    return;
  }
  // A receive for this message may have begun while the message came in.
  Unexpected& message = in.unexpected.back();
  std::int64_t waiting = take_waiting(in, message.channel);
  if (waiting < 0) return;
  Operation& operation = operations_[static_cast<std::size_t>(waiting)];
  std::size_t actual = message.bytes.size();
  if (actual == operation.bytes && actual > 0) std::memcpy(operation.destination, message.bytes.data(), actual);
  in.unexpected.pop_back();
  settle(static_cast<std::uint32_t>(waiting), actual);
}

// Returns the oldest receive that waits for the channel, and removes it from the waiting ones. Returns -1 if there is
// none.
std::int64_t Mailbox::take_waiting(Incoming& in, const Channel& channel) {
  auto found = std::find_if(in.waiting.begin(), in.waiting.end(),
                            [&](std::uint32_t index) { return operations_[index].channel == channel; });
  if (found == in.waiting.end()) return -1;
  std::int64_t index = *found;
  in.waiting.erase(found);
  return index;
}

void Mailbox::settle(std::uint32_t index, std::size_t actual_bytes) {
  Operation& operation = operations_[index];
  operation.actual_bytes = actual_bytes;
  operation.state = actual_bytes == operation.bytes ? Operation::State::done : Operation::State::failed;
  --active_;
}

std::size_t Mailbox::copy_in(Outgoing& out, const std::byte* from, std::size_t bytes) {
  std::uint64_t room = ring_bytes_ - (out.written - out.head->read.value.load(std::memory_order_acquire));
  bytes = std::min<std::size_t>(bytes, room);
  std::size_t at = out.written & (ring_bytes_ - 1);
  std::size_t until_end = std::min(bytes, ring_bytes_ - at);
  if (link_.has_to_stream(until_end)) devices::copy_streaming(out.ring + at, from, until_end);
  else if (until_end > 0) std::memcpy(out.ring + at, from, until_end);
  if (bytes > until_end) std::memcpy(out.ring, from + until_end, bytes - until_end);
  out.written += bytes;
  return bytes;
}

// Copies bytes out of the ring. If `to` is null, the bytes are dropped.
std::size_t Mailbox::copy_out(Incoming& in, std::byte* to, std::size_t bytes) {
  std::uint64_t available = in.head->written.value.load(std::memory_order_acquire) - in.read;
  bytes = std::min<std::size_t>(bytes, available);
  std::size_t at = in.read & (ring_bytes_ - 1);
  std::size_t until_end = std::min(bytes, ring_bytes_ - at);
  if (to != nullptr) {
    if (until_end > 0) std::memcpy(to, in.ring + at, until_end);
    if (bytes > until_end) std::memcpy(to + until_end, in.ring, bytes - until_end);
  }
  in.read += bytes;
  return bytes;
}

}  // namespace hvd::transport::shm
