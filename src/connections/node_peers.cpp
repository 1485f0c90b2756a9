#include "connections/node_peers.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "connections/unix/peer_handshake.hpp"
#include "connections/watcher.hpp"
#include "native/posix/memory/wait_word.hpp"
#include "native/posix/processes/fork_guard.hpp"
#include "native/posix/sockets/unix_socket.hpp"

namespace hvd::connections {
namespace {

enum class Kind : std::uint32_t {
  offer = 1,  // a name, with a descriptor
  leave = 2,  // after this message the sender may close its end
};
constexpr std::size_t longest_message = 1024;

struct Letter {
  Buffer message;
  posix::FileDescriptor descriptor;  // the offered memory; may be empty
};

struct Peer {
  Rank rank;
  posix::FileDescriptor socket;  // empty when the connection has ended
  bool has_left = false;
  std::deque<Letter> outbox;  // letters for which the socket had no room
};

}  // namespace

Result<PeerListener> PeerListener::open() {
  auto listening = posix::listen_on_unix_socket();
  if (!listening) return std::move(listening.error());
  PeerListener listener;
  listener.socket_ = std::move(listening->socket);
  listener.address_ = std::move(listening->address);
  return listener;
}

struct NodePeers::State {
  ~State();

  void wait();
  void work();
  void read_from(Peer& peer);
  void keep_message(Peer& peer, const Buffer& message, posix::FileDescriptor descriptor);
  void empty_outbox(Peer& peer);
  void close(Peer& peer);
  void report_lost();
  void send(Peer& peer, const Buffer& message, int descriptor);

  std::mutex mutex;  // guards all members below except `watcher`
  std::vector<Peer> peers;
  std::map<std::string, posix::FileDescriptor, std::less<>> arrived;
  posix::WaitWord* wake = nullptr;
  std::function<void(Rank)> callback;
  std::vector<Rank> lost;  // lost peers that were not reported yet
  bool is_leaving = false;
  Watcher watcher;
};

Result<std::shared_ptr<NodePeers>> NodePeers::meet(const World& world, const Group& node, PeerListener listener,
                                                   Deadline deadline) {
  auto state = std::make_unique<State>();
  HVD_RETURN_IF_ERROR(state->watcher.open());
  auto connections = shake_hands(world, node, listener.take(), deadline);
  if (!connections) return std::move(connections.error());
  for (std::size_t seat = 0; seat < connections->size(); ++seat) {
    if (static_cast<int>(seat) == node.me.value) continue;
    posix::withhold_from_children((*connections)[seat].get());
    state->peers.push_back({node.ranks[seat], std::move((*connections)[seat]), false, {}});
  }
  if (!state->peers.empty()) {
    HVD_RETURN_IF_ERROR(state->watcher.start(
        "hvd-peers", [watched = state.get()] { watched->wait(); }, [watched = state.get()] { watched->work(); }));
  }
  return std::shared_ptr<NodePeers>(new NodePeers(std::move(state)));
}

NodePeers::NodePeers(std::unique_ptr<State> state) : state_(std::move(state)) {}

NodePeers::~NodePeers() {
  if (!state_->watcher.stop()) (void)state_.release();
}

NodePeers::State::~State() {
  for (Peer& peer : peers) close(peer);
}

Status NodePeers::offer(const Group& group, std::string_view name, int descriptor) {
  Buffer message;
  ByteWriter writer(message);
  writer.put(Kind::offer);
  writer.put_string(name);
  if (message.size() > longest_message) {
    return Error(ErrorCode::invalid_argument,
                 "the name of offered memory is longer than " + std::to_string(longest_message) + " bytes");
  }
  std::lock_guard lock(state_->mutex);
  for (Peer& peer : state_->peers) {
    bool is_member = std::find(group.ranks.begin(), group.ranks.end(), peer.rank) != group.ranks.end();
    if (is_member && peer.socket) state_->send(peer, message, descriptor);
  }
  return {};
}

std::optional<posix::FileDescriptor> NodePeers::take(std::string_view name) {
  std::lock_guard lock(state_->mutex);
  auto found = state_->arrived.find(name);
  if (found == state_->arrived.end()) return std::nullopt;
  posix::FileDescriptor descriptor = std::move(found->second);
  state_->arrived.erase(found);
  return descriptor;
}

std::optional<Rank> NodePeers::first_lost() const {
  std::lock_guard lock(state_->mutex);
  return state_->lost.empty() ? std::nullopt : std::optional(state_->lost.front());
}

void NodePeers::set_wake(posix::WaitWord* wake) {
  std::lock_guard lock(state_->mutex);
  state_->wake = wake;
}

void NodePeers::on_lost(std::function<void(Rank)> callback) {
  {
    std::lock_guard lock(state_->mutex);
    state_->callback = std::move(callback);
  }
  state_->watcher.poke();
}

void NodePeers::leave() {
  Buffer message;
  ByteWriter(message).put(Kind::leave);
  std::lock_guard lock(state_->mutex);
  if (std::exchange(state_->is_leaving, true)) return;
  for (Peer& peer : state_->peers) {
    if (peer.socket) state_->send(peer, message, -1);
  }
}

// The caller holds the mutex. If sending fails, the watcher finds the connection closed.
void NodePeers::State::send(Peer& peer, const Buffer& message, int descriptor) {
  if (peer.outbox.empty()) {
    auto sent = posix::send_message(peer.socket, message, descriptor);
    if (!sent) log::error(sent.error().message);
    if (!sent || *sent != posix::Delivery::would_block) return;
  }
  posix::FileDescriptor copy(descriptor < 0 ? -1 : ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  peer.outbox.push_back({message, std::move(copy)});
  watcher.poke();
}

// Sleeps until a peer or another thread of this process needs the watcher.
void NodePeers::State::wait() {
  std::vector<pollfd> watched{{watcher.descriptor(), POLLIN, 0}};
  {
    std::lock_guard lock(mutex);
    for (const Peer& peer : peers) {
      auto events = static_cast<short>(peer.outbox.empty() ? POLLIN : POLLIN | POLLOUT);
      if (peer.socket) watched.push_back({peer.socket.get(), events, 0});
    }
  }
  ::poll(watched.data(), watched.size(), -1);
  watcher.take_pokes();
}

void NodePeers::State::work() {
  {
    std::lock_guard lock(mutex);
    for (Peer& peer : peers) {
      if (peer.socket) empty_outbox(peer);
      if (peer.socket) read_from(peer);
    }
  }
  report_lost();
}

void NodePeers::State::read_from(Peer& peer) {
  for (;;) {
    Buffer message;
    message.reserve(longest_message);
    posix::FileDescriptor descriptor;
    auto received = posix::receive_message(peer.socket, message, descriptor);
    if (received && *received == posix::Delivery::would_block) return;
    if (received && *received == posix::Delivery::done) {
      keep_message(peer, message, std::move(descriptor));
      continue;
    }
    // Either the connection has ended, or something that the peer offered was lost. A wait for it would then never end,
    // so the connection is closed.
    if (!received) log::error("rank " + std::to_string(peer.rank.value) + ": " + received.error().message);
    close(peer);
    if (!peer.has_left && !is_leaving) lost.push_back(peer.rank);
    if (wake != nullptr) wake->post();
    return;
  }
}

void NodePeers::State::keep_message(Peer& peer, const Buffer& message, posix::FileDescriptor descriptor) {
  ByteReader reader(message);
  switch (reader.get<Kind>()) {
    case Kind::offer: {
      std::string name(reader.get_string());
      if (!reader.ok() || !descriptor) return;
      arrived.insert_or_assign(std::move(name), std::move(descriptor));
      if (wake != nullptr) wake->post();
      return;
    }
    case Kind::leave: peer.has_left = true; return;
  }
}

void NodePeers::State::empty_outbox(Peer& peer) {
  while (!peer.outbox.empty()) {
    const Letter& letter = peer.outbox.front();
    auto sent = posix::send_message(peer.socket, letter.message, letter.descriptor.get());
    if (sent && *sent == posix::Delivery::would_block) return;
    peer.outbox.pop_front();
  }
}

void NodePeers::State::close(Peer& peer) {
  if (!peer.socket) return;
  // close() is not enough, because a child that is forked at this moment may have a copy.
  ::shutdown(peer.socket.get(), SHUT_RDWR);
  posix::stop_withholding(peer.socket.get());
  peer.socket.reset();
  peer.outbox.clear();
}

void NodePeers::State::report_lost() {
  std::vector<Rank> reported;
  std::function<void(Rank)> report;
  {
    std::lock_guard lock(mutex);
    if (!callback || lost.empty()) return;
    reported.swap(lost);
    report = callback;
  }
  for (Rank rank : reported) report(rank);
}

}  // namespace hvd::connections
