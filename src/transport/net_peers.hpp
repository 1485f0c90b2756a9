#pragma once
// TCP connections between ranks of different nodes: authenticated with the job's secret before anything received is
// interpreted, handed out by name. Control links and the tcp transport take their sockets from here.
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.hpp"
#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/world.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::posix {
class WaitWord;
}

namespace hvd::transport {

// Listening sockets on the interfaces that peers may use, with ports that the kernel chose (or of HOROVOD_PORT_RANGE).
// Made before the ranks meet; its endpoints travel in Member::endpoints.
class NetListener {
 public:
  static Result<NetListener> open(const Config& config);
  NetListener(NetListener&&) noexcept;
  NetListener& operator=(NetListener&&) noexcept;
  ~NetListener();
  // "10.0.0.3:41234 [fd00::3]:41234"
  const std::string& endpoints() const { return endpoints_; }

 private:
  friend class NetPeers;
  std::string endpoints_;
  std::vector<posix::FileDescriptor> sockets_;
};

// All methods may be called from any thread and none blocks. A forked child does not keep the connections.
class NetPeers {
 public:
  // `world` outlives the object. Strangers' connections are dropped and named in the log.
  static Result<std::shared_ptr<NetPeers>> start(const World& world, const Config& config, NetListener listener);
  ~NetPeers();
  NetPeers(const NetPeers&) = delete;
  NetPeers& operator=(const NetPeers&) = delete;

  // The connection of that name between the peer and me; both ask for it, the higher rank dials. Asked again and again
  // (the wake word is posted when there is news) until it is there: non-blocking, TCP_NODELAY, noticing a peer that
  // vanished without a word. The caller owns it from then on.
  Result<std::optional<posix::FileDescriptor>> connection(Rank peer, std::string_view name);
  // Which address the connection between us uses, "10.0.0.3 (eth0)"; for people.
  std::string describe(int socket) const;

  // Posted when a connection came or failed, and by arm().
  void set_wake(posix::WaitWord* wake);
  // The engine is about to sleep: the wake word is posted once as soon as the socket can be read (or also written).
  void arm(int socket, bool also_writable);
  // Before a socket that was ever armed is closed.
  void disarm(int socket);

 private:
  struct State;
  explicit NetPeers(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hvd::transport
