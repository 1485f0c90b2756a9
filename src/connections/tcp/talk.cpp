#include "connections/tcp/talk.hpp"

#include <sys/socket.h>

#include <cerrno>

#include "base/result.hpp"

namespace hvd::connections::tcp {

bool Talk::move() {
  for (;;) {
    // A refusing handshake may still have output. It is sent too, because the other end may learn from it.
    if (!send_output()) return false;
    if (handshake_.state() == Handshake::State::refused) {
      why_ = handshake_.why();
      return false;
    }
    if (handshake_.state() == Handshake::State::done) return true;
    std::size_t wanted = handshake_.wanted();
    // While this end waits to introduce itself, only the end of the connection may come.
    ssize_t got = wanted > 0 ? ::recv(socket_.get(), message_.data() + have_, wanted - have_, 0)
                             : ::recv(socket_.get(), message_.data(), 1, MSG_PEEK);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got < 0) return leave(errno_text(errno));
    if (got == 0) return leave("it closed the connection before the handshake was over");
    if (wanted == 0) {
      why_ = "it spoke out of turn";
      return false;
    }
    have_ += static_cast<std::size_t>(got);
    if (have_ < wanted) continue;
    handshake_.receive({message_.data(), have_});
    have_ = 0;
  }
}

// A message is shorter than any socket's buffer. If it does not fit, the other end has not read the earlier messages.
bool Talk::send_output() {
  Buffer output = handshake_.take_output();
  if (output.empty()) return true;
  ssize_t sent = 0;
  do {
    sent = ::send(socket_.get(), output.data(), output.size(), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(output.size())) return true;
  return leave(sent < 0 ? errno_text(errno) : "it does not read what it is sent");
}

bool Talk::leave(std::string why) {
  was_left_ = true;
  why_ = std::move(why);
  return false;
}

}  // namespace hvd::connections::tcp
