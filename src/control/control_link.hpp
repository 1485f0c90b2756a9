#pragma once
// The connection between the leaders of two nodes that are neighbours in the tree. It carries frames in order.
#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/world.hpp"
#include "connections/net_peers.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::control {

// Only the engine's thread uses it. Only leave() may block.
class ControlLink {
 public:
  ControlLink(const World& world, connections::NetPeers& net, Rank peer) : world_(world), net_(net), peer_(peer) {}
  ~ControlLink();
  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;

  Rank peer() const { return peer_; }
  bool is_connected() const { return static_cast<bool>(socket_); }
  // Returns true when the connection is made.
  Result<bool> connect();
  // Keeps the frame, and sends as much as the socket takes. flush() sends more of it later.
  Status send(ConstBytes frame);
  Status flush();
  // Returns the next complete frame, which is valid until the next call, or nothing if none has arrived. Fails with
  // peer_lost if the connection has ended. After the peer has left in order, it returns nothing instead.
  Result<std::optional<ConstBytes>> receive();
  bool peer_has_left() const { return peer_has_left_; }
  // From now on the wake word is posted when bytes arrive or can be sent.
  void arm();
  // Tells the peer that this rank leaves. Waits until the message is sent or the deadline has passed.
  void leave(Deadline deadline) noexcept;

 private:
  Error lost(const std::string& how) const;

  const World& world_;
  connections::NetPeers& net_;
  const Rank peer_;
  posix::FileDescriptor socket_;
  Buffer unsent_, received_;
  std::size_t sent_ = 0;   // number of bytes of unsent_ that were sent
  std::size_t taken_ = 0;  // number of bytes of received_ that were used
  bool peer_has_left_ = false;
};

}  // namespace hvd::control
