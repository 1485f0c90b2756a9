#include "bootstrap/store/sealed_stream.hpp"

#include <sys/socket.h>

#include <cerrno>

#include "native/posix/random.hpp"

namespace hvd::bootstrap {
namespace {

constexpr std::string_view mark = "HVDstor2";
constexpr std::size_t digest_bytes = sizeof(Digest);
constexpr std::uint32_t refusal = 0xffffffff;  // instead of a message's length

Digest draw_nonce() {
  Digest nonce{};
  posix::draw_random(nonce);
  return nonce;
}

Digest proof(std::string_view secret, std::string_view purpose, ConstBytes accepted, ConstBytes dialled) {
  Buffer text;
  ByteWriter out(text);
  out.put_string(purpose);
  out.put_raw(accepted.data(), accepted.size());
  out.put_raw(dialled.data(), dialled.size());
  return hmac_sha256(as_bytes(secret), text);
}

}  // namespace

SealedStream::SealedStream(posix::FileDescriptor socket, Side side, std::string_view secret,
                           std::size_t largest_message)
    : socket_(std::move(socket)),
      side_(side),
      secret_(secret),
      largest_message_(largest_message),
      nonce_(draw_nonce()) {
  if (side_ == Side::dialled) return;
  ByteWriter out(out_);
  out.put_raw(mark.data(), mark.size());
  out.put_raw(nonce_.data(), nonce_.size());
}

Digest SealedStream::seal(bool of_dialler, std::uint64_t number, ConstBytes message) const {
  Buffer text;
  text.reserve(message.size() + 16);
  ByteWriter out(text);
  out.put(static_cast<std::uint8_t>(of_dialler ? 1 : 2));
  out.put(number);
  out.put_raw(message.data(), message.size());
  return hmac_sha256(session_, text);
}

void SealedStream::derive_session(ConstBytes accepted, ConstBytes dialled) {
  session_ = proof(secret_, "session", accepted, dialled);
  shaken_ = true;
}

ConstBytes SealedStream::take(std::size_t size) {
  ConstBytes taken = ConstBytes(in_).subspan(taken_, size);
  taken_ += size;
  return taken;
}

void SealedStream::queue_message(ConstBytes message) {
  Digest digest = seal(side_ == Side::dialled, sent_messages_++, message);
  ByteWriter out(out_);
  out.put(static_cast<std::uint32_t>(message.size()));
  out.put_raw(message.data(), message.size());
  out.put_raw(digest.data(), digest.size());
}

Result<posix::Delivery> SealedStream::send(ConstBytes message) {
  if (!shaken_) {
    ByteWriter out(waiting_);
    out.put_string({reinterpret_cast<const char*>(message.data()), message.size()});
    return posix::Delivery::done;
  }
  queue_message(message);
  // What does not fit into the socket now goes with the next call.
  return flush() == posix::Delivery::closed ? posix::Delivery::closed : posix::Delivery::done;
}

posix::Delivery SealedStream::flush() {
  while (has_unsent()) {
    ssize_t sent = ::send(socket_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) sent_ += static_cast<std::size_t>(sent);
    else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return posix::Delivery::would_block;
    else if (sent < 0 && errno != EINTR) return posix::Delivery::closed;
  }
  out_.clear();
  sent_ = 0;
  return posix::Delivery::done;
}

posix::Delivery SealedStream::read_more() {
  if (taken_ == in_.size()) {
    in_.clear();
    taken_ = 0;
  }
  std::byte bytes[16 << 10];
  for (;;) {
    ssize_t got = ::recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0) {
      in_.insert(in_.end(), bytes, bytes + got);
      untouched_ = false;
      return posix::Delivery::done;
    }
    if (got == 0) return posix::Delivery::closed;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return posix::Delivery::would_block;
    if (errno != EINTR) return posix::Delivery::closed;
  }
}

// False: more bytes are wanted.
Result<bool> SealedStream::shake_hands() {
  if (side_ == Side::accepted) {
    if (unread() < 2 * digest_bytes) return false;
    ConstBytes theirs = take(digest_bytes);
    if (!are_equal_secrets(take(digest_bytes), proof(secret_, "dialler", nonce_, theirs))) {
      ByteWriter(out_).put(refusal);
      (void)flush();
      return Error(ErrorCode::mismatch, "the other end does not know the job's secret");
    }
    derive_session(nonce_, theirs);
    open_ = true;
    return true;
  }
  if (unread() < mark.size() + digest_bytes) return false;
  if (to_string(take(mark.size())) != mark)
    return Error(ErrorCode::mismatch, "the other end is no store of this version of Horovod");
  ConstBytes theirs = take(digest_bytes);
  Digest answer = proof(secret_, "dialler", theirs, nonce_);
  derive_session(theirs, nonce_);
  ByteWriter out(out_);
  out.put_raw(nonce_.data(), nonce_.size());
  out.put_raw(answer.data(), answer.size());
  ByteReader waiting(waiting_);
  while (!waiting.at_end()) queue_message(as_bytes(waiting.get_string()));
  waiting_ = Buffer();
  return true;
}

Result<posix::Delivery> SealedStream::receive(Buffer& message) {
  for (;;) {
    if (!shaken_) {
      auto shaken = shake_hands();
      if (!shaken) return std::move(shaken.error());
      if (*shaken && flush() == posix::Delivery::closed) return posix::Delivery::closed;
    }
    std::uint32_t size = 0;
    if (shaken_ && unread() >= sizeof size) {
      std::memcpy(&size, in_.data() + taken_, sizeof size);
      if (size == refusal && side_ == Side::dialled && !open_) {
        refused_ = true;
        return Error(ErrorCode::mismatch, "the other end has another secret");
      }
      // Bounds what a stranger can make us keep; nothing else is concluded from it before the seal was checked.
      if (size > largest_message_) return Error(ErrorCode::mismatch, "the other end sent a message that is too long");
      if (unread() >= sizeof size + size + digest_bytes) {
        take(sizeof size);
        ConstBytes content = take(size);
        if (!are_equal_secrets(take(digest_bytes), seal(side_ == Side::accepted, received_messages_, content)))
          return Error(ErrorCode::mismatch, "the other end does not know the job's secret");
        ++received_messages_;
        open_ = true;
        message.assign(content.begin(), content.end());
        return posix::Delivery::done;
      }
    }
    if (auto more = read_more(); more != posix::Delivery::done) return more;
  }
}

}  // namespace hvd::bootstrap
