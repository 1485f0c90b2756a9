#pragma once
// The connection between the leaders of two nodes that are neighbours in the tree: frames in order, nothing else.
#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/world.hpp"
#include "connections/net_peers.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::control {

// Used by the engine's thread alone. Nothing blocks but leave().
class ControlLink {
 public:
  ControlLink(const World& world, connections::NetPeers& net, Rank peer) : world_(world), net_(net), peer_(peer) {}
  ~ControlLink();
  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;

  Rank peer() const { return peer_; }
  bool is_connected() const { return static_cast<bool>(socket_); }
  // True once it is there.
  Result<bool> connect();
  // Keeps the frame and sends as much as the socket takes, now and in flush().
  Status send(ConstBytes frame);
  Status flush();
  // The next whole frame, valid until the next call; nothing while none is there. peer_lost if the connection has
  // ended, but not after the peer has left: then nothing more comes.
  Result<std::optional<ConstBytes>> receive();
  bool peer_has_left() const { return peer_has_left_; }
  // From now on the wake word is posted when something comes or can be sent.
  void arm();
  // Tells the peer that this rank leaves, and waits until that is sent or the deadline has passed.
  void leave(Deadline deadline) noexcept;

 private:
  Error lost(const std::string& how) const;

  const World& world_;
  connections::NetPeers& net_;
  const Rank peer_;
  posix::FileDescriptor socket_;
  Buffer unsent_, received_;
  std::size_t sent_ = 0;   // of unsent_
  std::size_t taken_ = 0;  // of received_
  bool peer_has_left_ = false;
};

}  // namespace hvd::control
