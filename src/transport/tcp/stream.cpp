#include "transport/tcp/stream.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text/cut_text.hpp"
#include "native/posix/sockets/tcp_socket.hpp"

namespace hvd::transport::tcp {
namespace {

// The most bytes that are moved in one direction before it is the other direction's turn. A limit lets both ends work
// at the same time.
constexpr std::size_t stride_bytes = 1 << 20;
// A small message with its header and the messages behind it are read by one call.
constexpr std::size_t stage_bytes = 16 << 10;
constexpr std::size_t most_messages_per_call = 8;
// The size of the kernel's window. With the kernel's default a message of 64 KB and its header would need two turns.
constexpr int window_bytes = 2 << 20;

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

void Stream::open(posix::FileDescriptor socket) {
  socket_ = std::move(socket);
  posix::widen_receive_window(socket_.get(), window_bytes);
  if (stage_ == nullptr) stage_ = std::make_unique_for_overwrite<std::byte[]>(stage_bytes);
}

posix::FileDescriptor Stream::take_socket() {
  outgoing_.clear();
  first_ = sent_ = 0;
  waiting_.clear();
  target_ = -1;
  is_inside_ = false;
  early_.clear();
  return std::move(socket_);
}

void Stream::send(std::uint32_t operation) {
  outgoing_.push_back(operation);
  if (!can_send_) fail_sends();
}

void Stream::recv(std::uint32_t operation) {
  Operation& wanted = (*operations_)[operation];
  // The last early message may not have arrived completely.
  auto complete = early_.end() - (is_inside_ && target_ < 0 ? 1 : 0);
  auto found =
      std::find_if(early_.begin(), complete, [&](const Early& each) { return each.channel == wanted.channel; });
  if (found == complete) {
    waiting_.push_back(operation);
    return;
  }
  std::size_t actual = found->bytes.size();
  if (actual == wanted.bytes && actual > 0) std::memcpy(wanted.data, found->bytes.data(), actual);
  spare_.push_back(std::move(found->bytes));
  early_.erase(found);
  settle(operation, actual);
}

bool Stream::push() {
  if (!has_to_send()) return false;
  if (!can_send_) {
    fail_sends();
    return true;
  }
  Header headers[most_messages_per_call];
  iovec parts[2 * most_messages_per_call];
  std::size_t count = 0, messages = 0, total = 0, skipped = sent_;
  for (std::size_t at = first_; at < outgoing_.size() && messages < most_messages_per_call && total < stride_bytes;
       ++at, ++messages) {
    Operation& operation = (*operations_)[outgoing_[at]];
    const Channel& channel = operation.channel;
    Header& header = headers[messages];
    header = {channel.batch.value, operation.bytes, channel.chunk, channel.stage, Header::Kind::message};
    std::size_t of_header = std::min(skipped, sizeof header);
    if (of_header < sizeof header) {
      parts[count++] = {reinterpret_cast<std::byte*>(&header) + of_header, sizeof header - of_header};
      total += sizeof header - of_header;
    }
    std::size_t of_bytes = skipped - of_header;
    skipped = 0;
    std::size_t length = std::min(operation.bytes - of_bytes, stride_bytes);
    if (length > 0) parts[count++] = {operation.data + of_bytes, length};
    total += length;
    if (of_bytes + length < operation.bytes) break;
  }
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  ssize_t moved = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  if (moved < 0) {
    int error = errno;
    if (would_block(error)) {
      ++blocked_looks_;
      if (!is_left()) return false;
      error = 0;
    }
    if (!end_) end_ = End{error, {}};
    can_send_ = false;
    fail_sends();
    return true;
  }
  blocked_looks_ = 0;
  sent_ += static_cast<std::size_t>(moved);
  while (has_to_send()) {
    std::uint32_t number = outgoing_[first_];
    std::size_t whole = sizeof(Header) + (*operations_)[number].bytes;
    if (sent_ < whole) break;
    sent_ -= whole;
    ++first_;
    settle(number, whole - sizeof(Header));
  }
  if (!has_to_send()) {
    outgoing_.clear();
    first_ = 0;
  }
  return moved > 0;
}

bool Stream::is_left() const {
  if (end_) return true;
  pollfd asked{socket_.get(), POLLRDHUP, 0};
  return ::poll(&asked, 1, 0) > 0;
}

bool Stream::pull() {
  bool has_moved = false;
  std::uint64_t enough = read_bytes_ + stride_bytes;
  while (read_bytes_ < enough && expects_anything()) {
    if (!can_receive_ && staged() == 0) {
      fail_receives();
      return true;
    }
    if (!(is_inside_ ? read_body() : read_header())) return has_moved;
    has_moved = true;
  }
  return has_moved;
}

// Reads the header of the next message and finds the receive for it. Returns false if the header has not arrived.
bool Stream::read_header() {
  if (staged() < sizeof(Header)) return fill();
  Header header;
  std::memcpy(&header, stage_.get() + stage_begin_, sizeof header);
  if (header.kind == Header::Kind::abort) {
    std::size_t length = std::min<std::size_t>(header.bytes, longest_abort_reason);
    if (staged() < sizeof header + length) return fill();
    const auto* text = reinterpret_cast<const char*>(stage_.get() + stage_begin_ + sizeof header);
    end_ = End{0, std::string(text, length)};
    can_send_ = can_receive_ = false;
    stage_begin_ = stage_end_ = 0;
    return true;
  }
  stage_begin_ += sizeof header;
  is_inside_ = true;
  header_ = header;
  received_ = 0;
  target_ = take_waiting(header.channel());
  if (target_ < 0) {
    early_.push_back({header.channel(), {}});
    if (!spare_.empty()) {
      early_.back().bytes = std::move(spare_.back());
      spare_.pop_back();
    }
    early_.back().bytes.resize(header.bytes);
  }
  if (header.bytes == 0) end_message();
  return true;
}

bool Stream::read_body() {
  std::byte* to = nullptr;  // null if the message has a wrong size and is dropped
  if (target_ < 0) to = early_.back().bytes.data();
  else if (Operation& wanted = (*operations_)[static_cast<std::size_t>(target_)]; wanted.bytes == header_.bytes)
    to = wanted.data;
  std::size_t left = header_.bytes - received_;
  if (staged() == 0 && to != nullptr && left >= stage_bytes / 4) {
    stage_begin_ = stage_end_ = 0;
    std::size_t length = std::min(left, stride_bytes);
    iovec parts[] = {{to + received_, length}, {stage_.get(), stage_bytes}};
    ssize_t got = ::readv(socket_.get(), parts, length == left ? 2 : 1);
    if (got <= 0) return note_end(got);
    std::size_t taken = std::min(static_cast<std::size_t>(got), length);
    received_ += taken;
    stage_end_ = static_cast<std::size_t>(got) - taken;
    read_bytes_ += static_cast<std::size_t>(got);
  } else {
    if (staged() == 0 && !fill()) return false;
    std::size_t taken = std::min(left, staged());
    if (to != nullptr) std::memcpy(to + received_, stage_.get() + stage_begin_, taken);
    stage_begin_ += taken;
    received_ += taken;
  }
  if (received_ == header_.bytes) end_message();
  return true;
}

// Reads more bytes into the stage. Returns false if no bytes have come. Returns true at the end of the connection, so
// that the caller looks again.
bool Stream::fill() {
  if (!can_receive_) {  // only half a message is there, and no more bytes will come
    stage_begin_ = stage_end_ = 0;
    return true;
  }
  if (stage_begin_ > 0) {
    std::memmove(stage_.get(), stage_.get() + stage_begin_, staged());
    stage_end_ -= stage_begin_;
    stage_begin_ = 0;
  }
  ssize_t got = ::recv(socket_.get(), stage_.get() + stage_end_, stage_bytes - stage_end_, 0);
  if (got <= 0) return note_end(got);
  stage_end_ += static_cast<std::size_t>(got);
  read_bytes_ += static_cast<std::size_t>(got);
  return true;
}

bool Stream::note_end(ssize_t result) {
  if (result < 0 && would_block(errno)) return false;
  if (!end_) end_ = End{result < 0 ? errno : 0, {}};
  can_receive_ = false;
  return true;
}

void Stream::end_message() {
  is_inside_ = false;
  if (target_ >= 0) {
    settle(static_cast<std::uint32_t>(target_), header_.bytes);
    target_ = -1;
    return;
  }
  // A receive for this message may have begun while the message came in.
  Early& message = early_.back();
  std::int64_t waiting = take_waiting(message.channel);
  if (waiting < 0) return;
  Operation& wanted = (*operations_)[static_cast<std::size_t>(waiting)];
  std::size_t actual = message.bytes.size();
  if (actual == wanted.bytes && actual > 0) std::memcpy(wanted.data, message.bytes.data(), actual);
  spare_.push_back(std::move(message.bytes));
  early_.pop_back();
  settle(static_cast<std::uint32_t>(waiting), actual);
}

// Returns the oldest receive that waits for the channel, and removes it from the waiting ones. Returns -1 if there is
// none.
std::int64_t Stream::take_waiting(const Channel& channel) {
  auto found = std::find_if(waiting_.begin(), waiting_.end(),
                            [&](std::uint32_t number) { return (*operations_)[number].channel == channel; });
  if (found == waiting_.end()) return -1;
  std::int64_t number = *found;
  waiting_.erase(found);
  return number;
}

void Stream::settle(std::uint32_t number, std::size_t actual_bytes) {
  Operation& operation = (*operations_)[number];
  operation.actual_bytes = actual_bytes;
  operation.state = actual_bytes == operation.bytes ? Operation::State::done : Operation::State::failed;
}

void Stream::fail_sends() {
  for (std::size_t at = first_; at < outgoing_.size(); ++at)
    (*operations_)[outgoing_[at]].state = Operation::State::failed;
  outgoing_.clear();
  first_ = sent_ = 0;
}

void Stream::fail_receives() {
  for (std::uint32_t number : waiting_) (*operations_)[number].state = Operation::State::failed;
  if (target_ >= 0) (*operations_)[static_cast<std::size_t>(target_)].state = Operation::State::failed;
  waiting_.clear();
  target_ = -1;
  if (is_inside_ && !early_.empty()) early_.pop_back();
  is_inside_ = false;
}

void Stream::fail(End end) {
  end_ = std::move(end);
  can_send_ = can_receive_ = false;
  fail_sends();
  fail_receives();
}

void Stream::send_abort(const std::string& why) {
  if (!is_open() || !can_send_ || sent_ > 0) return;
  std::string_view text = cut_text(why, longest_abort_reason);
  Header header;
  header.bytes = text.size();
  header.kind = Header::Kind::abort;
  Buffer message;
  ByteWriter writer(message);
  writer.put(header);
  writer.put_raw(text.data(), text.size());
  [[maybe_unused]] auto sent = ::send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL);
}

}  // namespace hvd::transport::tcp
