#pragma once
// Unix sockets between the processes of one node: they hand over memory (memfd) and notice when a process ends.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.hpp"
#include "base/group.hpp"
#include "base/result.hpp"
#include "base/world.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::posix {
class WaitWord;
}

namespace hvd::connections {

// A listening socket in the abstract namespace (no file), with a name that the kernel chose. Made before the ranks
// meet; its address travels in Member::address.
class PeerListener {
 public:
  static Result<PeerListener> open();
  const std::string& address() const { return address_; }
  posix::FileDescriptor take() { return std::move(socket_); }

 private:
  posix::FileDescriptor socket_;
  std::string address_;
};

// All methods may be called from any thread. A forked child (a data loader's worker) does not keep the connections, so
// a rank that ends is noticed even while its children live on.
class NodePeers {
 public:
  // Collective over the ranks of the node: every rank gets a connection with every other. Connections of other users'
  // processes are dropped, and those of processes that do not know the job's name. Blocks until the deadline at most.
  static Result<std::shared_ptr<NodePeers>> meet(const World& world, const Group& node, PeerListener listener,
                                                 Deadline deadline);
  // Closes the connections. Without leave() before, the peers take it for this rank's loss.
  ~NodePeers();
  NodePeers(const NodePeers&) = delete;
  NodePeers& operator=(const NodePeers&) = delete;

  // One rank of a group gives the others a descriptor under a name; take() yields it, once, when it has arrived. Never
  // blocks; the descriptor may be closed afterwards. A lost peer is passed over: it is reported.
  Status offer(const Group& group, std::string_view name, int descriptor);
  std::optional<posix::FileDescriptor> take(std::string_view name);
  // This word is posted whenever something arrived or a peer was lost. After the call nobody touches the former word.
  void set_wake(posix::WaitWord* wake);
  // Called once per lost peer, on the watcher's thread: the peer's process ended or closed its sockets. Peers that were
  // lost before it was set are reported too.
  void on_lost(std::function<void(Rank)> callback);
  // The job ends by agreement: from now on no peer is reported, and the peers are told not to report this rank. (A
  // Runtime uses NodeBoard::leave() in place of it.)
  void leave();

 private:
  struct State;
  explicit NodePeers(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hvd::connections
