#pragma once
// Unix sockets between the processes of one node. They pass memory (memfd) on, and notice when a process ends.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.hpp"
#include "base/group.hpp"
#include "base/result.hpp"
#include "base/world.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::posix {
class WaitWord;
}

namespace hvd::connections {

// A listening socket in the abstract namespace (without a file). The kernel chose its name. It is made before the ranks
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

// Any thread may call the methods. A forked child (a data loader's worker) does not keep the connections. So the end of
// a rank is noticed even while its children live on.
class NodePeers {
 public:
  // Collective over the ranks of the node: every rank gets a connection to every other rank. Connections of other
  // users' processes are dropped, and those of processes that do not know the job's name. Blocks at most until the
  // deadline.
  static Result<std::shared_ptr<NodePeers>> meet(const World& world, const Group& node, PeerListener listener,
                                                 Deadline deadline);
  // Closes the connections. If leave() was not called before, the peers take this for the loss of this rank.
  ~NodePeers();
  NodePeers(const NodePeers&) = delete;
  NodePeers& operator=(const NodePeers&) = delete;

  // offer() gives the other ranks of a group a descriptor under a name. take() returns it, once, when it has arrived.
  // Both never block. The sender may close its descriptor afterwards. A lost peer is ignored here, because it is
  // reported by on_lost().
  Status offer(const Group& group, std::string_view name, int descriptor);
  std::optional<posix::FileDescriptor> take(std::string_view name);
  // Returns a peer that was lost and has not been reported to on_lost() yet, if there is one.
  std::optional<Rank> first_lost() const;
  // Sets the word that is posted when something has arrived or a peer was lost. After the call the previous word is not
  // touched.
  void set_wake(posix::WaitWord* wake);
  // Sets a function that the watcher's thread calls once per lost peer: the peer's process has ended or closed its
  // sockets. Peers that were lost before this call are reported too.
  void on_lost(std::function<void(Rank)> callback);
  // Called when the job ends by agreement. From now on no peer is reported, and the peers are told not to report this
  // rank. (A Runtime uses NodeBoard::leave() instead.)
  void leave();

 private:
  struct State;
  explicit NodePeers(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hvd::connections
