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

// Listening sockets on the interfaces that peers may use, with ports that the kernel chose (or of HOROVOD_PORT_RANGE).
// Made before the ranks meet; its endpoints travel in Member::endpoints.
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
  bool is_forced_ = false;                          // connections of ours have to use these addresses too
};

// All methods may be called from any thread and none blocks. A forked child does not keep the connections.
class NetPeers {
 public:
  // `world` outlives the object. Strangers' connections are dropped, and named in the log once per address.
  static Result<std::shared_ptr<NetPeers>> start(const World& world, const Config& config, NetListener listener);
  ~NetPeers();
  NetPeers(const NetPeers&) = delete;
  NetPeers& operator=(const NetPeers&) = delete;

  // The connection of that name between the peer and me; both ask for it, the higher rank dials. Asked again and again
  // (the wake word is posted when there is news) until it is there: non-blocking, TCP_NODELAY, noticing a peer that
  // vanished without a word (HOROVOD_PEER_TIMEOUT). The caller owns it from then on; disarm() comes before close().
  // The rank that dials fails when it finds no way to the peer, with every address that it tried.
  Result<std::optional<posix::FileDescriptor>> connection(Rank peer, std::string_view name);
  // Which connections were asked for and are not there yet, "rank 3 (host n12, process 4711): …"; empty if none. For
  // whoever gives up waiting.
  std::string describe_missing() const;
  // Which address the connection between us uses, "10.0.0.3 (eth0)"; for people.
  std::string describe(int socket) const;
  // The interfaces of this host that connections use which were handed out, each once.
  std::vector<std::string> interfaces_in_use() const;

  // Posted when a connection came or failed, and by arm(). Afterwards nobody touches the former word.
  void set_wake(posix::WaitWord* wake);
  // The engine is about to sleep: the wake word is posted once as soon as the socket can be read (or also written).
  void arm(int socket, bool also_writable);
  // Before a connection is closed, whether it was ever armed or not.
  void disarm(int socket);
  // Whether the connection was ended here because the other end's host gives no sign of life.
  bool has_fallen_silent(int socket) const;
  // All connections end at once in both directions, those that were handed out too, and no new ones are made: what the
  // peers see when this process ends. For whoever gives up the job.
  void sever() noexcept;

 private:
  struct State;
  explicit NetPeers(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hvd::connections
