#include "control/control_link.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace hvd::control {

namespace {

using Length = std::uint32_t;

// A frame without bytes says that the sender leaves.
constexpr Length leave_mark = 0;
// No frame is nearly so long. A greater length means that the stream is damaged.
constexpr Length longest_frame = 256u << 20;

}  // namespace

ControlLink::~ControlLink() {
  if (socket_) net_.disarm(socket_.get());
}

Error ControlLink::lost(const std::string& how) const {
  if (socket_ && net_.has_fallen_silent(socket_.get())) {
    return {ErrorCode::peer_lost, describe(world_, peer_) +
                                      " gives no sign of life: its host or the network to it is down "
                                      "(HOROVOD_PEER_TIMEOUT sets how long that may last)"};
  }
  return {ErrorCode::peer_lost, "the connection to " + describe(world_, peer_) + " " + how +
                                    ": that process, its machine or the network between us has failed"};
}

Result<bool> ControlLink::connect() {
  if (socket_) return true;
  auto made = net_.connection(peer_, "control");
  if (!made) return std::move(made.error());
  if (!*made) return false;
  socket_ = std::move(**made);
  return true;
}

Status ControlLink::send(ConstBytes frame) {
  ByteWriter writer(unsent_);
  writer.put(static_cast<Length>(frame.size()));
  writer.put_raw(frame.data(), frame.size());
  return flush();
}

Status ControlLink::flush() {
  while (sent_ < unsent_.size()) {
    ssize_t count = ::send(socket_.get(), unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      sent_ += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return {};
    } else if (errno != EINTR) {
      if (peer_has_left_) break;  // the peer has left, so nobody reads the frames any more
      return lost("broke (" + errno_text(errno) + ")");
    }
  }
  unsent_.clear();
  sent_ = 0;
  return {};
}

Result<std::optional<ConstBytes>> ControlLink::receive() {
  for (;;) {
    std::size_t have = received_.size() - taken_;
    Length length = 0;
    if (have >= sizeof length) {
      std::memcpy(&length, received_.data() + taken_, sizeof length);
      if (length > longest_frame) return lost("carried something that is not ours");
      if (length == leave_mark) {
        peer_has_left_ = true;
        return std::optional<ConstBytes>();
      }
      if (have - sizeof length >= length) {
        ConstBytes frame(received_.data() + taken_ + sizeof length, length);
        taken_ += sizeof length + length;
        return std::optional<ConstBytes>(frame);
      }
    }
    if (taken_ > 0) {
      received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(taken_));
      taken_ = 0;
    }
    // The buffer grows for the next frame. Frames that were returned earlier are not needed any more.
    std::size_t before = received_.size();
    std::size_t room = std::max<std::size_t>(4096, sizeof length + length - std::min(have, sizeof length + length));
    received_.resize(before + room);
    ssize_t count = ::recv(socket_.get(), received_.data() + before, room, MSG_DONTWAIT);
    int failure = errno;
    received_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count > 0) continue;
    if (count == 0) return lost("was closed");
    if (failure == EAGAIN || failure == EWOULDBLOCK) return std::optional<ConstBytes>();
    if (failure != EINTR) return lost("broke (" + errno_text(failure) + ")");
  }
}

void ControlLink::arm() {
  if (socket_ && !peer_has_left_) net_.arm(socket_.get(), !unsent_.empty());
}

void ControlLink::leave(Deadline deadline) noexcept {
  if (!socket_) return;
  ByteWriter(unsent_).put(leave_mark);
  while (flush() && !unsent_.empty() && !deadline.passed()) {
    pollfd writable{socket_.get(), POLLOUT, 0};
    auto left_ms = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.left()).count();
    ::poll(&writable, 1, static_cast<int>(std::min<std::int64_t>(left_ms + 1, 1000)));
  }
  ::shutdown(socket_.get(), SHUT_WR);
}

}  // namespace hvd::control
