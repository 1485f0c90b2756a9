#include "bootstrap/store/sealed_stream.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <iterator>
#include <span>
#include <utility>

#include "native/posix/files/random.hpp"

namespace hvd::bootstrap {
namespace {

constexpr std::size_t digest_bytes = sizeof(Digest);
constexpr std::uint32_t refusal = 0xffffffff;  // sent in place of a message's length

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
  queue(as_bytes(mark));
  queue(nonce_);
}

Digest SealedStream::seal(bool of_dialler, std::uint64_t number, const Digest& message) const {
  Buffer text;
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

// Appends to the last small piece in the queue, so that one call sends several small pieces.
void SealedStream::queue(ConstBytes bytes) {
  if (out_.empty() || out_.back().shared != nullptr) out_.emplace_back();
  out_.back().own.insert(out_.back().own.end(), bytes.begin(), bytes.end());
  unsent_bytes_ += bytes.size();
}

void SealedStream::queue_message(store::SharedMessage message) {
  constexpr std::size_t small = 1024;
  if (!message->digest) message->digest = sha256(message->bytes);
  Digest digest = seal(side_ == Side::dialled, sent_messages_++, *message->digest);
  auto size = static_cast<std::uint32_t>(message->bytes.size());
  queue(std::as_bytes(std::span(&size, 1)));
  if (size <= small) {
    queue(message->bytes);
  } else {
    out_.push_back({std::move(message), {}});
    unsent_bytes_ += size;
  }
  queue(digest);
}

Result<posix::Delivery> SealedStream::send(ConstBytes message) {
  return send(std::make_shared<store::Message>(store::Message{Buffer(message.begin(), message.end())}));
}

Result<posix::Delivery> SealedStream::send(store::SharedMessage message) {
  if (!shaken_) {
    waiting_.push_back(std::move(message));
    return posix::Delivery::done;
  }
  queue_message(std::move(message));
  // What does not fit into the socket now is sent by a later call of flush().
  return flush() == posix::Delivery::closed ? posix::Delivery::closed : posix::Delivery::done;
}

posix::Delivery SealedStream::flush() {
  while (has_unsent()) {
    iovec parts[8];
    std::size_t count = 0;
    for (auto at = out_.begin(); at != out_.end() && count < std::size(parts); ++at, ++count) {
      ConstBytes bytes = at->bytes().subspan(count == 0 ? sent_ : 0);
      parts[count] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    }
    msghdr header{};
    header.msg_iov = parts;
    header.msg_iovlen = count;
    ssize_t sent = ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return posix::Delivery::would_block;
    if (sent < 0 && errno != EINTR) return posix::Delivery::closed;
    if (sent > 0) forget(static_cast<std::size_t>(sent));
  }
  return posix::Delivery::done;
}

void SealedStream::forget(std::size_t sent) {
  unsent_bytes_ -= sent;
  for (sent_ += sent; !out_.empty() && sent_ >= out_.front().bytes().size(); out_.pop_front())
    sent_ -= out_.front().bytes().size();
}

posix::Delivery SealedStream::read_more() {
  in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  std::byte bytes[64 << 10];
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

// False if more bytes are needed.
Result<bool> SealedStream::shake_hands() {
  if (side_ == Side::accepted) {
    if (unread() < 2 * digest_bytes) return false;
    ConstBytes theirs = take(digest_bytes);
    if (!are_equal_secrets(take(digest_bytes), proof(secret_, "dialler", nonce_, theirs))) {
      queue(std::as_bytes(std::span(&refusal, 1)));
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
  queue(nonce_);
  queue(answer);
  for (store::SharedMessage& message : std::exchange(waiting_, {})) queue_message(std::move(message));
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
      // This limits how much memory a stranger can make us use. Nothing else is concluded from the length before the
      // seal is checked.
      if (size > largest_message_) return Error(ErrorCode::mismatch, "the other end sent a message that is too long");
      if (unread() >= sizeof size + size + digest_bytes) {
        take(sizeof size);
        ConstBytes content = take(size);
        if (!are_equal_secrets(take(digest_bytes), seal(side_ == Side::accepted, received_messages_, sha256(content))))
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
