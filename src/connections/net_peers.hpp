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
#include "native/posix/tcp_address.hpp"

namespace hvd::posix {
class WaitWord;
}

namespace hvd::connections {

// Listening sockets on the interfaces that peers may use, on ports that the kernel chose (or from HOROVOD_PORT_RANGE).
// Made before the ranks meet; the endpoints travel in Member::endpoints.
class NetListener {
 public:
  // Fails on an interface (HOROVOD_GLOO_IFACE) that is not there, and on a port range without a free port.
  static Result<NetListener> open(const Config& config);
  // "10.0.0.3:41234 [fd00::3]:41234"
  const std::string& endpoints() const { return endpoints_; }

 private:
  friend class NetPeers;
  std::string endpoints_;
  std::vector<posix::FileDescriptor> sockets_;
  std::vector<posix::InterfaceAddress> addresses_;  // that the sockets listen on
  bool is_forced_ = false;                          // our own connections must use these addresses too
};

// All methods may be called from any thread and none blocks. A forked child does not keep the connections.
class NetPeers {
 public:
  // `world` outlives the object. Connections of strangers are dropped; the log names each address once.
  static Result<std::shared_ptr<NetPeers>> start(const World& world, const Config& config, NetListener listener);
  ~NetPeers();
  NetPeers(const NetPeers&) = delete;
  NetPeers& operator=(const NetPeers&) = delete;

  // The connection of that name between the peer and me. Both ask for it, and the higher rank dials. Ask again (the
  // wake word is posted when there is news) until it is there. It is non-blocking, has TCP_NODELAY, and notices a peer
  // that vanished without a word (HOROVOD_PEER_TIMEOUT). From then on the caller owns it and calls disarm() before
  // close(). The rank that dials fails if it finds no way to the peer; the error has every address that it tried.
  Result<std::optional<posix::FileDescriptor>> connection(Rank peer, std::string_view name);
  // The connections that were asked for and are not there yet, "rank 3 (host n12, process 4711): …"; empty if none. For
  // a caller that gives up waiting.
  std::string describe_missing() const;
  // The address that the connection between us uses, "10.0.0.3 (eth0)"; for people.
  std::string describe(int socket) const;
  // The interfaces of this host that the connections use which were handed out; each once.
  std::vector<std::string> interfaces_in_use() const;

  // This word is posted when a connection came or failed, and by arm(). After the call nobody touches the former word.
  void set_wake(posix::WaitWord* wake);
  // The engine is about to sleep: the wake word is posted once as soon as the socket can be read (or also written).
  void arm(int socket, bool also_writable);
  // Call it before a connection is closed, whether it was ever armed or not.
  void disarm(int socket);
  // Whether the connection was ended here because the other end's host gives no sign of life.
  bool has_fallen_silent(int socket) const;
  // Ends all connections at once in both directions, also those that were handed out, and makes no new ones. The peers
  // see what they would see if this process ended. For a rank that gives up the job.
  void sever() noexcept;

 private:
  struct State;
  explicit NetPeers(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hvd::connections
