#include "launcher/agent/packed_input.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "launcher/wire/keeper_protocol.hpp"

namespace hvd::launcher {
namespace {

// True if the event is there now. Does not wait for it.
bool is_now(int descriptor, short event) {
  pollfd polled{descriptor, event, 0};
  return ::poll(&polled, 1, 0) > 0 && (polled.revents & (event | POLLERR | POLLHUP)) != 0;
}

}  // namespace

Result<PackedInput> PackedInput::open() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe for a rank's input", errno);
  posix::FileDescriptor rank_end(ends[0]), to(ends[1]);
  ::fcntl(to.get(), F_SETFL, O_NONBLOCK);
  posix::FileDescriptor from(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  return PackedInput(std::move(from), std::move(rank_end), std::move(to));
}

PackedInput::PackedInput(posix::FileDescriptor from, posix::FileDescriptor rank_end, posix::FileDescriptor to)
    : from_(std::move(from)), rank_end_(std::move(rank_end)), to_(std::move(to)) {}

void PackedInput::add_to(std::vector<pollfd>& polled) const {
  if (to_) polled.push_back({to_.get(), static_cast<short>(waiting_.empty() ? 0 : POLLOUT), 0});
  if (from_ && waiting_.empty()) polled.push_back({from_.get(), POLLIN, 0});
}

std::optional<InputTaken> PackedInput::relay() {
  InputTaken taken;
  // The rank has stopped reading. The keeper continues to read, because the launcher may fail if its writes fail.
  if (to_ && is_now(to_.get(), POLLERR)) {
    to_.reset();
    taken.is_closed = true;
  }
  if (from_ && waiting_.empty() && is_now(from_.get(), POLLIN)) read();
  if (!to_) waiting_.clear();
  ssize_t count = waiting_.empty() ? 0 : ::write(to_.get(), waiting_.data(), waiting_.size());
  if (count > 0) {
    waiting_.erase(0, static_cast<std::size_t>(count));
    taken.bytes = static_cast<std::uint32_t>(count);
  }
  if (waiting_.empty() && has_ended_) {
    from_.reset();
    to_.reset();
  }
  return taken.bytes > 0 || taken.is_closed ? std::optional(taken) : std::nullopt;
}

void PackedInput::read() {
  std::array<char, 16 << 10> bytes;
  ssize_t count = ::read(from_.get(), bytes.data(), bytes.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  has_ended_ = count <= 0;
  if (count > 0) packet_.append(bytes.data(), static_cast<std::size_t>(count));
  std::size_t at = 0;
  for (std::size_t end; (end = packet_.find('\n', at)) != std::string::npos; at = end + 1) {
    Unpacked unpacked = unpack(packet_.substr(at, end + 1 - at));
    waiting_ += unpacked.bytes;
    has_ended_ = has_ended_ || unpacked.is_end_of_input;
  }
  packet_.erase(0, at);
}

}  // namespace hvd::launcher
