#include "launcher/messages.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace hvd::launcher {
namespace {

// One pair of overloads per message: fields in order. The frame's first byte is the alternative's index.
void put(ByteWriter& to, const std::vector<std::string>& list) {
  to.put(static_cast<std::uint32_t>(list.size()));
  for (const std::string& text : list) to.put_string(text);
}
std::vector<std::string> get_list(ByteReader& from) {
  std::vector<std::string> list;
  for (auto left = from.get<std::uint32_t>(); left > 0 && from.ok(); --left) list.emplace_back(from.get_string());
  return list;
}

void write(ByteWriter& to, const Launch& m) {
  to.put(m.rank);
  to.put_string(m.program);
  put(to, m.command);
  put(to, m.environment);
  to.put_string(m.folder);
  to.put(static_cast<std::uint32_t>(m.cpus.size()));
  for (std::int32_t cpu : m.cpus) to.put(cpu);
  to.put(m.inherits_input);
}
void read(ByteReader& from, Launch& m) {
  m.rank = from.get<Rank>();
  m.program = from.get_string();
  m.command = get_list(from);
  m.environment = get_list(from);
  m.folder = from.get_string();
  for (auto left = from.get<std::uint32_t>(); left > 0 && from.ok(); --left) m.cpus.push_back(from.get<std::int32_t>());
  m.inherits_input = from.get<bool>();
}
void write(ByteWriter& to, const Forward& m) {
  to.put(m.signal);
}
void read(ByteReader& from, Forward& m) {
  m.signal = from.get<std::int32_t>();
}
void write(ByteWriter& to, const End& m) {
  to.put(m.signal);
  to.put(m.grace_ms);
}
void read(ByteReader& from, End& m) {
  m.signal = from.get<std::int32_t>();
  m.grace_ms = from.get<std::int32_t>();
}
void write(ByteWriter& to, const Credit& m) {
  to.put(m.bytes);
}
void read(ByteReader& from, Credit& m) {
  m.bytes = from.get<std::uint32_t>();
}
void write(ByteWriter&, const Dismiss&) {}
void read(ByteReader&, Dismiss&) {}
void write(ByteWriter& to, const Started& m) {
  to.put(m.rank);
  to.put(m.process);
}
void read(ByteReader& from, Started& m) {
  m.rank = from.get<Rank>();
  m.process = from.get<std::int32_t>();
}
void write(ByteWriter& to, const NotStarted& m) {
  to.put(m.rank);
  to.put(m.error);
  to.put_string(m.step);
}
void read(ByteReader& from, NotStarted& m) {
  m.rank = from.get<Rank>();
  m.error = from.get<std::int32_t>();
  m.step = from.get_string();
}
void write(ByteWriter& to, const Output& m) {
  to.put(m.rank);
  to.put(m.stream);
  to.put_string(m.bytes);
}
void read(ByteReader& from, Output& m) {
  m.rank = from.get<Rank>();
  m.stream = from.get<Stream>();
  m.bytes = from.get_string();
}
void write(ByteWriter& to, const Exited& m) {
  to.put(m.rank);
  to.put(m.wait_status);
  to.put(m.group_known);
  to.put(m.oom_kills);
  to.put(m.limit_bytes);
  to.put_string(m.group);
}
void read(ByteReader& from, Exited& m) {
  m.rank = from.get<Rank>();
  m.wait_status = from.get<std::int32_t>();
  m.group_known = from.get<bool>();
  m.oom_kills = from.get<std::uint64_t>();
  m.limit_bytes = from.get<std::uint64_t>();
  m.group = from.get_string();
}
void write(ByteWriter& to, const Stopped& m) {
  to.put(m.rank);
  to.put(m.signal);
}
void read(ByteReader& from, Stopped& m) {
  m.rank = from.get<Rank>();
  m.signal = from.get<std::int32_t>();
}
void write(ByteWriter& to, const Told& m) {
  to.put(m.signal);
}
void read(ByteReader& from, Told& m) {
  m.signal = from.get<std::int32_t>();
}
void write(ByteWriter&, const AllGone&) {}
void read(ByteReader&, AllGone&) {}

template <std::size_t index>
std::optional<Message> decode_as(ByteReader& from) {
  std::variant_alternative_t<index, Message> message;
  read(from, message);
  if (!from.ok() || !from.at_end()) return std::nullopt;
  return Message(std::in_place_index<index>, std::move(message));
}

template <std::size_t... indices>
std::optional<Message> decode_any(std::size_t index, ByteReader& from, std::index_sequence<indices...>) {
  using Decoder = std::optional<Message> (*)(ByteReader&);
  static constexpr Decoder decoders[] = {&decode_as<indices>...};
  return index < sizeof...(indices) ? decoders[index](from) : std::nullopt;
}

}  // namespace

void encode(const Message& message, Buffer& out) {
  ByteWriter to(out);
  to.put(static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& alternative) { write(to, alternative); }, message);
}

std::optional<Message> decode(ConstBytes content) {
  ByteReader from(content);
  auto index = from.get<std::uint8_t>();
  return decode_any(index, from, std::make_index_sequence<std::variant_size_v<Message>>{});
}

Channel::Channel(posix::FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {
  ::fcntl(descriptor_.get(), F_SETFL, ::fcntl(descriptor_.get(), F_GETFL) | O_NONBLOCK);
}

short Channel::wants() const noexcept {
  return static_cast<short>(POLLIN | (sent_ < outgoing_.size() ? POLLOUT : 0));
}

void Channel::send(const Message& message) {
  std::size_t at = outgoing_.size();
  outgoing_.resize(at + sizeof(std::uint32_t));
  encode(message, outgoing_);
  auto size = static_cast<std::uint32_t>(outgoing_.size() - at - sizeof(std::uint32_t));
  std::memcpy(outgoing_.data() + at, &size, sizeof size);
}

void Channel::flush() {
  while (!closed_ && sent_ < outgoing_.size()) {
    ssize_t count = ::send(descriptor_.get(), outgoing_.data() + sent_, outgoing_.size() - sent_, MSG_NOSIGNAL);
    if (count > 0) {
      sent_ += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      // A broken stream shows at the next read; what was sent before it broke can still be read.
      if (errno != EAGAIN && errno != EWOULDBLOCK) sent_ = outgoing_.size();
      break;
    }
  }
  if (sent_ == outgoing_.size()) {
    outgoing_.clear();
    sent_ = 0;
  }
}

std::vector<Message> Channel::pump() {
  flush();
  std::vector<Message> messages;
  if (closed_) return messages;
  std::array<std::byte, 64 << 10> chunk;
  // Bounded, so that a talkative peer cannot keep us from everything else.
  for (int round = 0; round < 16; ++round) {
    ssize_t count = ::read(descriptor_.get(), chunk.data(), chunk.size());
    if (count > 0) {
      incoming_.insert(incoming_.end(), chunk.begin(), chunk.begin() + count);
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    closed_ = count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    break;
  }
  std::size_t at = 0;
  while (incoming_.size() - at >= sizeof(std::uint32_t)) {
    std::uint32_t size = 0;
    std::memcpy(&size, incoming_.data() + at, sizeof size);
    if (incoming_.size() - at - sizeof size < size) break;
    auto message = decode(ConstBytes(incoming_).subspan(at + sizeof size, size));
    if (!message) panic("a message between horovodrun and its agent is malformed");
    messages.push_back(std::move(*message));
    at += sizeof size + size;
  }
  incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(at));
  return messages;
}

}  // namespace hvd::launcher
