#pragma once
// A handshake under way on a socket.
#include <array>
#include <string>

#include "connections/tcp/handshake.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::connections::tcp {

class Talk {
 public:
  Talk(posix::FileDescriptor socket, Handshake handshake)
      : socket_(std::move(socket)), handshake_(std::move(handshake)) {}

  // Moves the handshake on as far as the bytes that have arrived allow. Never reads past the handshake. False when it
  // is over without success: why() tells the reason.
  bool move();
  const Handshake& handshake() const { return handshake_; }
  // See Handshake; move() must follow.
  void introduce(const Digest& name) { handshake_.introduce(name); }
  int descriptor() const { return socket_.get(); }
  posix::FileDescriptor take_socket() { return std::move(socket_); }
  // The connection was closed by the other end, or broke; the other end did not say anything wrong.
  bool was_left() const { return was_left_; }
  const std::string& why() const { return why_; }

 private:
  bool send_output();
  bool leave(std::string why);

  posix::FileDescriptor socket_;
  Handshake handshake_;
  std::array<std::byte, 128> message_;
  std::size_t have_ = 0;  // of the message that comes in
  bool was_left_ = false;
  std::string why_;
};

}  // namespace hvd::connections::tcp
