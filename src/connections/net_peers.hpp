#pragma once
// TCP connections between ranks of different nodes. They are authenticated with the job's secret before any received
// data are used, and each has a name. Control links and the tcp transport get their sockets here.
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/settings/config.hpp"
#include "base/world.hpp"
#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/sockets/tcp_address.hpp"

namespace hvd::posix {
class WaitWord;
}

namespace hvd::connections {

// Listening sockets on the interfaces that peers may use. The kernel chose their ports, or they are from
// HOROVOD_PORT_RANGE. They are made before the ranks meet; the endpoints travel in Member::endpoints.
class NetListener {
 public:
  // Fails if an interface (HOROVOD_GLOO_IFACE) does not exist, or if a port range has no free port.
  static Result<NetListener> open(const Config& config);
  // Returns text such as "10.0.0.3:41234 [fd00::3]:41234".
  const std::string& endpoints() const { return endpoints_; }

 private:
  friend class NetPeers;
  std::string endpoints_;
  std::vector<posix::FileDescriptor> sockets_;
  std::vector<posix::InterfaceAddress> addresses_;  // addresses of the sockets
  bool is_forced_ = false;                          // true if outgoing connections, too, must use these addresses
};

// Any thread may call the methods, and none of them blocks. A forked child does not keep the connections.
class NetPeers {
 public:
  // `world` must outlive the object. Connections of strangers are dropped; the log names each of their addresses once.
  static Result<std::shared_ptr<NetPeers>> start(const World& world, const Config& config, NetListener listener);
  ~NetPeers();
  NetPeers(const NetPeers&) = delete;
  NetPeers& operator=(const NetPeers&) = delete;

  // Returns the connection of that name between the peer and this rank. Both ranks ask for it, and the higher rank
  // dials. Call again until the connection is there; the wake word is posted when there is news. The connection is
  // non-blocking, has TCP_NODELAY, and notices a peer that vanished without a word (HOROVOD_PEER_TIMEOUT). The caller
  // owns the connection, and calls disarm() before close(). The rank that dials fails if it finds no way to the peer;
  // the error has every address that it tried.
  Result<std::optional<posix::FileDescriptor>> connection(Rank peer, std::string_view name);
  // Returns the connections that were asked for and are not made yet, "rank 3 (host n12, process 4711): …"; empty if
  // there are none. For a caller that gives up waiting.
  std::string describe_missing() const;
  // Returns the address that the connection uses, "10.0.0.3 (eth0)", for people.
  std::string describe(int socket) const;
  // Returns the interfaces of this host that are used by connections given to callers, each once.
  std::vector<std::string> interfaces_in_use() const;

  // Sets the word that is posted when a connection was made or failed, and by arm(). After the call the previous word
  // is not touched.
  void set_wake(posix::WaitWord* wake);
  // Called before the engine sleeps. The wake word is posted once when the socket can be read (or written, if asked
  // for).
  void arm(int socket, bool also_writable);
  // Call this before a connection is closed, even if it was never armed.
  void disarm(int socket);
  // True if the connection was ended here because the peer's host gave no sign of life.
  bool has_fallen_silent(int socket) const;
  // Ends all connections at once in both directions, also those given to callers, and makes no new ones. The peers see
  // the same as if this process had ended. Used by a rank that gives up the job.
  void sever() noexcept;

 private:
  struct State;
  explicit NetPeers(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hvd::connections
