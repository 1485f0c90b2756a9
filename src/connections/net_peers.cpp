#include "connections/net_peers.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/log.hpp"
#include "connections/tcp/dialer.hpp"
#include "connections/tcp/event_queue.hpp"
#include "connections/tcp/handshake.hpp"
#include "connections/tcp/stalls.hpp"
#include "connections/tcp/strangers.hpp"
#include "connections/watcher.hpp"
#include "native/posix/memory/wait_word.hpp"
#include "native/posix/processes/fork_guard.hpp"
#include "native/posix/sockets/tcp_socket.hpp"

namespace hvd::connections {
namespace {

using Key = std::pair<Rank, Digest>;

// If a listener found no free descriptor, it is tried again after this time.
constexpr std::chrono::milliseconds listener_pause{200};
// A peer that has not connected for this time is looked for. If nobody listens at its addresses any more, it is gone.
constexpr std::chrono::seconds longest_silence{10};

// Returns the interface of this host that the connection uses. Empty if it is not known.
std::string interface_of(int socket) {
  auto here = posix::TcpAddress::here(socket);
  auto interfaces = posix::interfaces();
  if (!here || !interfaces) return "";
  for (const posix::Interface& interface : *interfaces)
    for (const posix::InterfaceAddress& entry : interface.addresses)
      if (entry.address.is_same_host(*here)) return interface.name;
  return "";
}

}  // namespace

struct NetPeers::State {
  struct Missing {
    std::string name;  // for people
    Clock::time_point since;
  };
  State(const World& the_world, const Config& config, NetListener&& listener, posix::FileDescriptor epoll)
      : world(the_world),
        patience(std::max(milliseconds_of(config.peer_timeout_s), posix::least_patience)),
        look_after(std::clamp<std::chrono::milliseconds>(milliseconds_of(config.start_timeout_s) / 3,
                                                         std::chrono::milliseconds(1), longest_silence)),
        credentials(the_world),
        listeners(std::move(listener.sockets_)),
        addresses(listener.addresses_),
        events(std::move(epoll)),
        queue{events.get()},
        strangers(world, credentials, queue, patience),
        dialer(world, credentials, queue,
               {listener.addresses_, listener.is_forced_, patience, milliseconds_of(config.start_timeout_s)}) {}

  ~State();

  void wait();
  void work();
  void handle(const epoll_event& event);
  bool take_requests();
  void look_at_stalls(Clock::time_point now);
  void look_for_peers(Clock::time_point now);
  void stop_listening() const;
  void hand_out();
  void admit();
  int milliseconds_to_wait() const;
  void pause_listeners(bool paused);
  void post();

  const World& world;
  const std::chrono::milliseconds patience;
  const std::chrono::milliseconds look_after;  // so long a peer may not connect until it is looked for
  const tcp::Credentials credentials;
  const std::vector<posix::FileDescriptor> listeners;
  const std::vector<posix::InterfaceAddress> addresses;
  const posix::FileDescriptor events;  // the epoll instance
  const tcp::EventQueue queue;

  mutable std::mutex mutex;  // guards the members below
  std::map<Key, posix::FileDescriptor> arrived;
  std::map<Key, Error> failed;
  std::map<Key, Missing> missing;  // connections that are asked for and not made yet
  std::vector<Key> requests;       // connections that must be dialled
  std::set<int> handed_out;        // sockets that children must not keep
  tcp::Stalls stalls{patience};
  posix::WaitWord* wake = nullptr;
  bool is_severed = false;

  // Used only by the watcher's thread:
  tcp::Strangers strangers;
  tcp::Dialer dialer;
  std::optional<Clock::time_point> listeners_resume, next_look_at_stalls, next_look_for_peers;
  std::map<Rank, Clock::time_point> looked_for;  // when each peer was looked for last
  Watcher watcher;
};

Result<std::shared_ptr<NetPeers>> NetPeers::start(const World& world, const Config& config, NetListener listener) {
  if (world.secret.empty()) {
    return Error(ErrorCode::invalid_argument,
                 "the job has no secret: without one its TCP connections cannot be told from a stranger's");
  }
  posix::FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return system_error("cannot watch TCP connections (epoll_create1)", errno);
  auto state = std::make_unique<State>(world, config, std::move(listener), std::move(epoll));
  HVD_RETURN_IF_ERROR(state->watcher.open());
  bool is_watched = state->queue.add(state->watcher.descriptor(), EPOLLIN, tcp::Source::poke, 0);
  for (const auto& socket : state->listeners) {
    is_watched &= state->queue.add(socket.get(), EPOLLIN, tcp::Source::listener, static_cast<unsigned>(socket.get()));
  }
  if (!is_watched) return system_error("cannot watch TCP connections (epoll_ctl)", errno);
  for (const auto& socket : state->listeners) posix::withhold_from_children(socket.get());
  HVD_RETURN_IF_ERROR(state->watcher.start(
      "hvd-net", [watched = state.get()] { watched->wait(); }, [watched = state.get()] { watched->work(); }));
  return std::shared_ptr<NetPeers>(new NetPeers(std::move(state)));
}

NetPeers::NetPeers(std::unique_ptr<State> state) : state_(std::move(state)) {}

NetPeers::~NetPeers() {
  if (!state_->watcher.stop()) (void)state_.release();
}

NetPeers::State::~State() {
  for (const auto& socket : listeners) posix::stop_withholding(socket.get());
  for (int socket : handed_out) posix::stop_withholding(socket);
}

Result<std::optional<posix::FileDescriptor>> NetPeers::connection(Rank peer, std::string_view name) {
  if (peer == state_->world.rank || peer.value < 0 || peer.value >= state_->world.size()) {
    return Error(ErrorCode::invalid_argument, "rank " + std::to_string(state_->world.rank.value) +
                                                  " cannot have a TCP connection to rank " +
                                                  std::to_string(peer.value) + ": expected another rank, from 0 to " +
                                                  std::to_string(state_->world.size() - 1));
  }
  Key key{peer, sha256(as_bytes(name))};
  std::unique_lock lock(state_->mutex);
  if (state_->is_severed) return Error(ErrorCode::shut_down, "this rank has given up its TCP connections");
  if (auto found = state_->arrived.find(key); found != state_->arrived.end()) {
    std::optional<posix::FileDescriptor> socket = std::move(found->second);
    state_->arrived.erase(found);
    state_->missing.erase(key);
    state_->handed_out.insert(socket->get());
    posix::withhold_from_children(socket->get());
    return socket;
  }
  if (auto found = state_->failed.find(key); found != state_->failed.end()) return found->second;
  if (!state_->missing.try_emplace(key, State::Missing{std::string(name), Clock::now()}).second)
    return std::optional<posix::FileDescriptor>();
  if (peer < state_->world.rank) state_->requests.push_back(key);
  lock.unlock();
  state_->watcher.poke();
  return std::optional<posix::FileDescriptor>();
}

std::string NetPeers::describe_missing() const {
  std::lock_guard lock(state_->mutex);
  constexpr std::size_t most_named = 4;
  std::string text;
  std::size_t count = 0;
  for (const auto& [key, missing] : state_->missing) {
    if (++count > most_named) continue;
    const Rank peer = key.first;
    text += (text.empty() ? "" : "; ") + hvd::describe(state_->world, peer);
    if (peer < state_->world.rank) text += " has not answered yet at " + state_->world.member(peer).endpoints;
    else text += " has not connected yet to " + state_->world.me().endpoints;
    text += " (" + missing.name + ")";
  }
  if (count > most_named) text += "; and " + std::to_string(count - most_named) + " more";
  return text;
}

std::string NetPeers::describe(int socket) const {
  auto there = posix::TcpAddress::there(socket);
  if (!there) return "a connection that is closed";
  std::string name = interface_of(socket);
  return there->host() + (name.empty() ? "" : " (" + name + ")");
}

std::vector<std::string> NetPeers::interfaces_in_use() const {
  std::vector<std::string> names;
  std::lock_guard lock(state_->mutex);
  for (int socket : state_->handed_out) {
    std::string name = interface_of(socket);
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

void NetPeers::set_wake(posix::WaitWord* wake) {
  std::lock_guard lock(state_->mutex);
  state_->wake = wake;
}

// When a socket is armed, the kernel checks its state, so earlier events are not missed.
void NetPeers::arm(int socket, bool also_writable) {
  std::uint32_t events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT | (also_writable ? EPOLLOUT : 0u);
  auto number = static_cast<unsigned>(socket);
  if (!state_->queue.change(socket, events, tcp::Source::armed, number) &&
      !state_->queue.add(socket, events, tcp::Source::armed, number)) {
    state_->post();  // the socket cannot be watched, so the engine must not sleep on it
  }
  if (!also_writable) return;
  std::unique_lock lock(state_->mutex);
  if (!state_->handed_out.contains(socket) || !state_->stalls.add(socket)) return;
  lock.unlock();
  state_->watcher.poke();
}

void NetPeers::disarm(int socket) {
  state_->queue.remove(socket);
  std::lock_guard lock(state_->mutex);
  state_->stalls.remove(socket);
  if (state_->handed_out.erase(socket) > 0) posix::stop_withholding(socket);
}

bool NetPeers::has_fallen_silent(int socket) const {
  std::lock_guard lock(state_->mutex);
  return state_->stalls.has_ended(socket);
}

void NetPeers::sever() noexcept {
  {
    std::lock_guard lock(state_->mutex);
    state_->is_severed = true;
    // The sockets are not closed here: their owners close them.
    for (int socket : state_->handed_out) ::shutdown(socket, SHUT_RDWR);
    state_->arrived.clear();
    if (state_->wake != nullptr) state_->wake->post();
  }
  state_->watcher.poke();
}

// Sleeps until a socket, another thread of this process or a deadline needs the watcher.
void NetPeers::State::wait() {
  epoll_event found[64];
  int count = ::epoll_wait(events.get(), found, static_cast<int>(std::size(found)), milliseconds_to_wait());
  for (int i = 0; i < count; ++i) handle(found[i]);
}

void NetPeers::State::work() {
  if (take_requests()) stop_listening();
  Clock::time_point now = Clock::now();
  strangers.drop_late(now);
  look_for_peers(now);
  dialer.step(now);
  look_at_stalls(now);
  if (listeners_resume && now >= *listeners_resume) pause_listeners(false);
  hand_out();
}

void NetPeers::State::handle(const epoll_event& event) {
  switch (tcp::EventQueue::source_of(event)) {
    case tcp::Source::poke: return watcher.take_pokes();
    case tcp::Source::listener:
      if (!strangers.accept_from(static_cast<int>(tcp::EventQueue::number_of(event)))) pause_listeners(true);
      return;
    case tcp::Source::stranger: {
      // The mutex is held until the connection is in `arrived`. Otherwise a thread that already sees the peer act could
      // fail to find the peer's connection.
      std::lock_guard lock(mutex);
      strangers.move(tcp::EventQueue::number_of(event));
      return admit();
    }
    case tcp::Source::dial: return dialer.move(tcp::EventQueue::number_of(event));
    case tcp::Source::armed: return post();
  }
}

// Returns true if no more connections are to be made.
bool NetPeers::State::take_requests() {
  std::vector<Key> asked;
  {
    std::lock_guard lock(mutex);
    if (is_severed) return true;
    asked.swap(requests);
  }
  for (const Key& key : asked) dialer.dial(key.first, key.second);
  return false;
}

void NetPeers::State::look_at_stalls(Clock::time_point now) {
  std::lock_guard lock(mutex);
  stalls.step(now);
  next_look_at_stalls = stalls.next_deadline();
}

// Looks for the peers that should have connected long ago. A rank that died before it connected is noticed by nobody
// else if it was alone on its node.
void NetPeers::State::look_for_peers(Clock::time_point now) {
  std::lock_guard lock(mutex);
  next_look_for_peers.reset();
  for (const auto& [key, asked] : missing) {
    const Rank peer = key.first;
    if (peer < world.rank || arrived.contains(key) || failed.contains(key)) continue;
    auto last = looked_for.find(peer);
    Clock::time_point due = (last == looked_for.end() ? asked.since : std::max(asked.since, last->second)) + look_after;
    if (due <= now) {
      looked_for.insert_or_assign(peer, now);
      dialer.look_for(peer);
      due = now + look_after;
    }
    next_look_for_peers = next_look_for_peers ? std::min(*next_look_for_peers, due) : due;
  }
}

void NetPeers::State::stop_listening() const {
  for (const auto& socket : listeners) {
    queue.remove(socket.get());
    ::shutdown(socket.get(), SHUT_RDWR);  // from now on connections of peers are refused
  }
}

void NetPeers::State::hand_out() {
  auto outcomes = dialer.take_outcomes();
  if (outcomes.empty()) return;
  std::lock_guard lock(mutex);
  if (is_severed) return;
  for (auto& each : outcomes) {
    if (each.is_look) {
      if (each.connection) continue;
      for (const auto& [key, asked] : missing)
        if (key.first == each.peer) failed.insert_or_assign(key, each.connection.error());
      continue;
    }
    Key key{each.peer, each.name};
    if (each.connection) arrived.insert_or_assign(key, std::move(*each.connection));
    else failed.insert_or_assign(key, std::move(each.connection.error()));
  }
  if (wake != nullptr) wake->post();
}

// The caller holds the mutex.
void NetPeers::State::admit() {
  for (auto& each : strangers.take_proven()) {
    if (is_severed) continue;
    auto prepared = posix::prepare_connection(each.socket.get(), patience);
    if (!prepared) log::warning(prepared.error().message);
    arrived.insert_or_assign(Key{each.rank, each.name}, std::move(each.socket));
    if (wake != nullptr) wake->post();
  }
}

int NetPeers::State::milliseconds_to_wait() const {
  std::optional<Clock::time_point> next;
  for (auto deadline :
       {strangers.next_deadline(), dialer.next_deadline(), listeners_resume, next_look_at_stalls, next_look_for_peers})
    if (deadline) next = next ? std::min(*next, *deadline) : *deadline;
  if (!next) return -1;
  auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

void NetPeers::State::pause_listeners(bool paused) {
  listeners_resume.reset();
  if (paused) listeners_resume = Clock::now() + listener_pause;
  for (const auto& socket : listeners)
    queue.change(socket.get(), paused ? 0u : EPOLLIN, tcp::Source::listener, static_cast<unsigned>(socket.get()));
}

void NetPeers::State::post() {
  std::lock_guard lock(mutex);
  if (wake != nullptr) wake->post();
}

}  // namespace hvd::connections
