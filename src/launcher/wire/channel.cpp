#include "launcher/wire/channel.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/result.hpp"

namespace hvd::launcher {
namespace {

void never_block(int descriptor) {
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

}  // namespace

template <typename Sent, typename Received>
Channel<Sent, Received>::Channel(posix::FileDescriptor both) : reader_(std::move(both)) {
  never_block(reader_.get());
}

template <typename Sent, typename Received>
Channel<Sent, Received>::Channel(posix::FileDescriptor reader, posix::FileDescriptor writer)
    : reader_(std::move(reader)), writer_(std::move(writer)) {
  never_block(reader_.get());
  never_block(writer_.get());
}

template <typename Sent, typename Received>
void Channel<Sent, Received>::close() {
  reader_.reset();
  writer_.reset();
  closed_ = true;
}

template <typename Sent, typename Received>
void Channel<Sent, Received>::expect_greeting(std::string greeting) {
  awaited_ = std::move(greeting);
}

template <typename Sent, typename Received>
std::string Channel<Sent, Received>::other_greeting(std::string_view beginning) const {
  std::string_view text(reinterpret_cast<const char*>(incoming_.data()), incoming_.size());
  std::size_t at = text.find(beginning);
  if (at == std::string_view::npos || text.find('\n', at) == std::string_view::npos) return "";
  return std::string(text.substr(at, text.find('\n', at) - at));
}

template <typename Sent, typename Received>
void Channel<Sent, Received>::greet(std::string_view greeting) {
  ConstBytes bytes = as_bytes(greeting);
  outgoing_.insert(outgoing_.end(), bytes.begin(), bytes.end());
}

template <typename Sent, typename Received>
void Channel<Sent, Received>::skip_to_greeting() {
  constexpr std::size_t longest_chatter = 1 << 20;
  std::string_view text(reinterpret_cast<const char*>(incoming_.data()), incoming_.size());
  std::size_t at = text.find(awaited_);
  if (at != std::string_view::npos) {
    incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(at + awaited_.size()));
    awaited_.clear();
  } else if (incoming_.size() > longest_chatter) {
    incoming_.erase(incoming_.begin(), incoming_.end() - static_cast<std::ptrdiff_t>(awaited_.size()));
  }
}

template <typename Sent, typename Received>
short Channel<Sent, Received>::wants() const noexcept {
  return static_cast<short>(POLLIN | (has_unsent() && !writer_ ? POLLOUT : 0));
}

template <typename Sent, typename Received>
void Channel<Sent, Received>::send(const Sent& message) {
  std::size_t at = outgoing_.size();
  outgoing_.resize(at + sizeof(std::uint32_t));
  encode(message, outgoing_);
  auto size = static_cast<std::uint32_t>(outgoing_.size() - at - sizeof(std::uint32_t));
  std::memcpy(outgoing_.data() + at, &size, sizeof size);
}

template <typename Sent, typename Received>
void Channel<Sent, Received>::flush() {
  while (!closed_ && sent_ < outgoing_.size()) {
    ssize_t count = ::write(writer(), outgoing_.data() + sent_, outgoing_.size() - sent_);
    if (count > 0) {
      sent_ += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      // The stream is broken. The next read will show this; what the other end sent before can still be read.
      if (errno != EAGAIN && errno != EWOULDBLOCK) sent_ = outgoing_.size();
      break;
    }
  }
  if (sent_ == outgoing_.size()) {
    outgoing_.clear();
    sent_ = 0;
  }
}

template <typename Sent, typename Received>
std::vector<Received> Channel<Sent, Received>::pump() {
  flush();
  std::vector<Received> messages;
  if (closed_) return messages;
  std::array<std::byte, 64 << 10> chunk;
  // The number of rounds is bounded, so that an other end which sends very much cannot keep us from everything else.
  for (int round = 0; round < 16; ++round) {
    ssize_t count = ::read(reader_.get(), chunk.data(), chunk.size());
    if (count > 0) {
      incoming_.insert(incoming_.end(), chunk.begin(), chunk.begin() + count);
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    closed_ = count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    break;
  }
  if (!was_greeted()) skip_to_greeting();
  if (!was_greeted()) return messages;
  std::size_t at = 0;
  while (incoming_.size() - at >= sizeof(std::uint32_t)) {
    std::uint32_t size = 0;
    std::memcpy(&size, incoming_.data() + at, sizeof size);
    if (incoming_.size() - at - sizeof size < size) break;
    auto message = decode<Received>(ConstBytes(incoming_).subspan(at + sizeof size, size));
    if (!message) {  // something else writes into the stream, so it cannot be trusted
      closed_ = true;
      break;
    }
    messages.push_back(std::move(*message));
    at += sizeof size + size;
  }
  incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(at));
  return messages;
}

template class Channel<Order, Report>;
template class Channel<Report, Order>;

}  // namespace hvd::launcher
