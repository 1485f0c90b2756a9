#pragma once
// A handshake that runs on a socket.
#include <array>
#include <string>

#include "connections/tcp/handshake.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::connections::tcp {

class Talk {
 public:
  Talk(posix::FileDescriptor socket, Handshake handshake)
      : socket_(std::move(socket)), handshake_(std::move(handshake)) {}

  // Continues the handshake as far as the arrived bytes allow. Never reads past the handshake. Returns false if it has
  // failed: why() gives the reason.
  bool move();
  const Handshake& handshake() const { return handshake_; }
  // Does the same as Handshake::introduce(). Call move() afterwards.
  void introduce(const Digest& name) { handshake_.introduce(name); }
  int descriptor() const { return socket_.get(); }
  posix::FileDescriptor take_socket() { return std::move(socket_); }
  // True if the other end closed the connection or it broke, and the other end had sent nothing wrong.
  bool was_left() const { return was_left_; }
  const std::string& why() const { return why_; }

 private:
  bool send_output();
  bool leave(std::string why);

  posix::FileDescriptor socket_;
  Handshake handshake_;
  std::array<std::byte, 128> message_;
  std::size_t have_ = 0;  // bytes of the incoming message that have arrived
  bool was_left_ = false;
  std::string why_;
};

}  // namespace hvd::connections::tcp
