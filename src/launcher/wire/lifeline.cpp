// The handshake: the agent sends the first half of its token. horovodrun answers with the second half, or with zeros if
// it does not know the token. If horovodrun closes the connection without an answer, it had no time for the agent, and
// the agent dials again.
#include "launcher/wire/lifeline.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <thread>

#include "base/checksums/sha256.hpp"
#include "base/text/comma_list.hpp"
#include "bootstrap/store/front_door.hpp"
#include "native/posix/files/random.hpp"
#include "native/posix/sockets/tcp_socket.hpp"
#include "native/posix/sockets/watch_list.hpp"

namespace hvd::launcher {
namespace {

constexpr std::size_t half = 16;
// longest pause between tries of an agent to reach horovodrun
constexpr std::chrono::milliseconds longest_wait_outside(500);

Result<posix::FileDescriptor> listen_within(const posix::TcpAddress& address, const PortRange& range) {
  for (int port = range.first; port <= range.last; ++port) {
    auto listener = posix::listen_on_tcp(address.with_port(static_cast<std::uint16_t>(port)));
    if (!listener || *listener) return listener;
  }
  return Error(ErrorCode::system, "all ports of HOROVOD_PORT_RANGE=" + std::to_string(range.first) + "-" +
                                      std::to_string(range.last) + " are taken on " + address.host());
}

}  // namespace

struct Lifelines::State {
  struct Connection {
    posix::FileDescriptor socket;
    std::string received;
    std::optional<std::size_t> host;  // known once the agent has proven itself
  };
  std::chrono::milliseconds patience{};
  std::vector<posix::FileDescriptor> listeners;
  posix::WatchList events;
  bootstrap::FrontDoor door;
  std::string addresses;
  std::vector<std::string> tokens;  // by host; a token is cleared when an agent has used it
  std::map<std::uint64_t, Connection> connections;
  std::uint64_t last_number = bootstrap::FrontDoor::of_clock;

  Status listen(const Options& options) {
    auto found = posix::interfaces();
    if (!found) return found.error();
    // Addresses that may be reached from other hosts come first.
    std::stable_sort(found->begin(), found->end(), [](const posix::Interface& a, const posix::Interface& b) {
      auto badness = [](const posix::Interface& i) {
        return i.is_loopback ? 3 : i.is_bridge ? 2 : i.is_running ? 0 : 1;
      };
      return badness(a) < badness(b);
    });
    for (const posix::Interface& interface : *found) {
      const auto& wanted = options.interfaces;
      if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), interface.name) == wanted.end()) continue;
      for (const posix::InterfaceAddress& each : interface.addresses) {
        if (each.address.is_link_local()) continue;
        auto listener = listen_within(each.address, options.ports);
        if (!listener) return std::move(listener.error());
        addresses += (addresses.empty() ? "" : ",") + posix::TcpAddress::here(listener->get())->text();
        listeners.push_back(std::move(*listener));
      }
    }
    if (listeners.empty()) return posix::none_of_the_interfaces(options.interfaces, *found);
    std::vector<int> doors;
    for (const posix::FileDescriptor& listener : listeners) doors.push_back(listener.get());
    // Each agent dials all addresses at once.
    std::size_t places = options.hosts * doors.size() + bootstrap::FrontDoor::spare_places;
    return door.open(events, std::move(doors), places, patience);
  }

  void accept_all() {
    for (posix::FileDescriptor& listener : listeners) {
      while (door.is_open()) {
        auto accepted = posix::accept_from_tcp(listener.get());
        if (!accepted) return door.pause();
        if (!accepted->socket) break;
        if (!posix::prepare_connection(accepted->socket.get(), patience)) continue;
        if (!events.add(accepted->socket.get(), ++last_number)) continue;
        connections[last_number].socket = std::move(accepted->socket);
        door.add(last_number);
      }
    }
  }

  void drop_overdue() {
    for (std::uint64_t number : door.take_overdue()) {
      (void)read_from(number);
      if (door.has(number)) drop(number);
    }
  }

  void drop(std::uint64_t number) {
    connections.erase(number);
    door.remove(number);
  }

  // Returns the lifeline that broke, if one did.
  std::optional<Loss> read_from(std::uint64_t number) {
    auto found = connections.find(number);
    if (found == connections.end()) return std::nullopt;
    Connection& connection = found->second;
    char bytes[half];
    std::size_t wanted = connection.host ? sizeof bytes : half - connection.received.size();
    ssize_t count = ::read(connection.socket.get(), bytes, wanted);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
    if (connection.host) {
      Loss loss{*connection.host, count == 0 || errno == ECONNRESET};
      connections.erase(found);
      return loss;
    }
    if (count > 0) connection.received.append(bytes, static_cast<std::size_t>(count));
    if (count > 0 && connection.received.size() < half) return std::nullopt;
    if (count > 0 && prove(connection)) door.remove(number);
    else drop(number);
    return std::nullopt;
  }

  bool prove(Connection& connection) {
    for (std::size_t host = 0; host < tokens.size(); ++host) {
      if (tokens[host].empty() ||
          !are_equal_secrets(as_bytes(connection.received), as_bytes(std::string_view(tokens[host]).substr(0, half))))
        continue;
      connection.host = host;
      bool answered = ::write(connection.socket.get(), tokens[host].data() + half, half) == static_cast<ssize_t>(half);
      tokens[host].clear();
      return answered;
    }
    constexpr char unknown[half] = {};
    (void)!::write(connection.socket.get(), unknown, half);
    return false;
  }
};

Lifelines::Lifelines(std::unique_ptr<State> state) : state_(std::move(state)) {}
Lifelines::~Lifelines() = default;

Result<std::unique_ptr<Lifelines>> Lifelines::open(const Options& options) {
  auto state = std::make_unique<State>();
  state->patience = options.patience;
  auto events = posix::WatchList::open();
  if (!events) return events.error();
  state->events = std::move(*events);
  HVD_RETURN_IF_ERROR(state->listen(options));
  for (std::size_t host = 0; host < options.hosts; ++host) state->tokens.push_back(posix::random_bytes(2 * half));
  return std::unique_ptr<Lifelines>(new Lifelines(std::move(state)));
}

const std::string& Lifelines::addresses() const {
  return state_->addresses;
}
std::string Lifelines::token(std::size_t host) const {
  while (state_->tokens.size() <= host) state_->tokens.push_back(posix::random_bytes(2 * half));
  return state_->tokens[host];
}
int Lifelines::descriptor() const {
  return state_->events.descriptor();
}

std::vector<Lifelines::Loss> Lifelines::serve() {
  std::vector<Loss> lost;
  epoll_event events[64];
  int count = ::epoll_wait(state_->events.descriptor(), events, std::size(events), 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == bootstrap::FrontDoor::of_listeners) state_->accept_all();
    else if (events[i].data.u64 == bootstrap::FrontDoor::of_clock) state_->drop_overdue();
    else if (auto loss = state_->read_from(events[i].data.u64)) lost.push_back(*loss);
  }
  return lost;
}

namespace {

// Dials each address once.
class Dialling {
 public:
  Dialling(const std::string& addresses, const std::string& token, std::chrono::milliseconds patience)
      : token_(token), patience_(patience) {
    for (const std::string& text : items_of(addresses)) {
      auto address = posix::TcpAddress::parse(text);
      if (!address) continue;
      auto begun = posix::begin_connecting(*address, std::nullopt);
      attempts_.push_back({text, std::move(begun.socket), false, ""});
      if (!attempts_.back().socket) give_up(attempts_.back(), system_error("connect", begun.error).message);
    }
  }

  // Returns the connection on which horovodrun has proven itself. Returns an empty one if every attempt has failed or
  // the deadline has passed.
  posix::FileDescriptor wait(Deadline deadline) {
    while (is_any_open() && !deadline.passed()) {
      std::vector<pollfd> polled;
      for (Attempt& attempt : attempts_)
        polled.push_back({attempt.socket.get(), static_cast<short>(attempt.connected ? POLLIN : POLLOUT), 0});
      ::poll(polled.data(), polled.size(), static_cast<int>(std::min<std::int64_t>(deadline.left().count() + 1, 1000)));
      for (std::size_t i = 0; i < attempts_.size(); ++i)
        if (attempts_[i].socket && polled[i].revents != 0 && advance(attempts_[i]))
          return std::move(attempts_[i].socket);
    }
    return {};
  }

  bool is_any_open() const {
    return std::any_of(attempts_.begin(), attempts_.end(), [](const Attempt& a) { return bool(a.socket); });
  }
  // True if horovodrun accepted the connection but had no time for this agent.
  bool was_closed_on() const { return was_closed_on_; }
  const std::string& faults() const { return faults_; }

 private:
  struct Attempt {
    std::string address;
    posix::FileDescriptor socket;
    bool connected = false;
    std::string received;
  };

  void give_up(Attempt& attempt, const std::string& why) {
    faults_ += (faults_.empty() ? "" : "; ") + attempt.address + ": " + why;
    attempt.socket.reset();
  }

  // True once horovodrun has proven itself.
  bool advance(Attempt& attempt) {
    if (!attempt.connected) {
      int error = posix::outcome_of_connecting(attempt.socket.get());
      attempt.connected = true;
      if (error != 0) give_up(attempt, system_error("connect", error).message);
      else if (!posix::prepare_connection(attempt.socket.get(), patience_) ||
               ::write(attempt.socket.get(), token_.data(), half) != static_cast<ssize_t>(half))
        be_closed_on(attempt);
      return false;
    }
    char bytes[half];
    ssize_t count = ::read(attempt.socket.get(), bytes, half - attempt.received.size());
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (count <= 0) {
      be_closed_on(attempt);
      return false;
    }
    attempt.received.append(bytes, static_cast<std::size_t>(count));
    if (attempt.received.size() < half) return false;
    if (are_equal_secrets(as_bytes(attempt.received), as_bytes(std::string_view(token_).substr(half)))) return true;
    give_up(attempt, "something else than this job's horovodrun answers there");
    return false;
  }

  void be_closed_on(Attempt& attempt) {
    was_closed_on_ = true;
    give_up(attempt, "closed the connection");
  }

  const std::string& token_;
  std::chrono::milliseconds patience_;
  std::vector<Attempt> attempts_;
  std::string faults_;
  bool was_closed_on_ = false;
};

}  // namespace

Result<posix::FileDescriptor> take_lifeline(const std::string& addresses, const std::string& token,
                                            std::chrono::milliseconds patience, Deadline deadline) {
  for (std::chrono::milliseconds pause(10);; pause = std::min(pause * 2, longest_wait_outside)) {
    Dialling dialling(addresses, token, patience);
    if (auto socket = dialling.wait(deadline)) return socket;
    bool is_late = dialling.is_any_open() || deadline.left() <= pause;
    if (is_late || !dialling.was_closed_on()) {
      std::string faults = dialling.faults().empty() ? "" : " (" + dialling.faults() + ")";
      return Error(is_late ? ErrorCode::timeout : ErrorCode::peer_lost,
                   "horovodrun cannot be reached at " + addresses + (is_late ? " in time" : "") + faults);
    }
    std::this_thread::sleep_for(pause);  // no event tells when horovodrun has time
  }
}

}  // namespace hvd::launcher
