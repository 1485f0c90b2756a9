// The handshake: the agent sends the first half of its token, horovodrun answers with the second.
#include "launcher/lifeline.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>

#include "base/comma_list.hpp"
#include "base/sha256.hpp"
#include "native/posix/random.hpp"
#include "native/posix/tcp_socket.hpp"
#include "native/posix/watch_list.hpp"

namespace hvd::launcher {
namespace {

constexpr std::size_t half = 16;
constexpr std::size_t most_strangers = 256;
constexpr std::uint64_t of_listeners = 0;

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
    std::optional<std::size_t> host;  // once it has proven itself
  };
  std::chrono::milliseconds patience{};
  std::vector<posix::FileDescriptor> listeners;
  posix::WatchList events;
  std::string addresses;
  std::vector<std::string> tokens;  // cleared when used
  std::map<std::uint64_t, Connection> connections;
  std::uint64_t last_number = of_listeners;

  Status listen(const Options& options) {
    auto found = posix::interfaces();
    if (!found) return found.error();
    // Those that lead somewhere first.
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
        HVD_RETURN_IF_ERROR(events.add(listener->get(), of_listeners));
        listeners.push_back(std::move(*listener));
      }
    }
    if (listeners.empty()) return posix::none_of_the_interfaces(options.interfaces, *found);
    return {};
  }

  void accept_all() {
    for (posix::FileDescriptor& listener : listeners) {
      for (;;) {
        auto accepted = posix::accept_from_tcp(listener.get());
        if (!accepted || !accepted->socket) break;
        drop_a_stranger_if_there_are_many();
        if (!posix::prepare_connection(accepted->socket.get(), patience)) continue;
        if (!events.add(accepted->socket.get(), ++last_number)) continue;
        connections[last_number].socket = std::move(accepted->socket);
      }
    }
  }

  void drop_a_stranger_if_there_are_many() {
    auto is_stranger = [](const auto& entry) { return !entry.second.host; };
    if (std::count_if(connections.begin(), connections.end(), is_stranger) <
        static_cast<std::ptrdiff_t>(most_strangers))
      return;
    connections.erase(std::find_if(connections.begin(), connections.end(), is_stranger));
  }

  // The lifeline that broke, if one did.
  std::optional<Loss> hear(std::uint64_t number) {
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
    if (count > 0 && (connection.received.size() < half || prove(connection))) return std::nullopt;
    connections.erase(found);
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
    if (events[i].data.u64 == of_listeners) state_->accept_all();
    else if (auto loss = state_->hear(events[i].data.u64)) lost.push_back(*loss);
  }
  return lost;
}

void Lifelines::forget(std::size_t host) {
  state_->tokens[host].clear();
  std::erase_if(state_->connections, [&](const auto& entry) { return entry.second.host == host; });
}

Result<posix::FileDescriptor> take_lifeline(const std::string& addresses, const std::string& token,
                                            std::chrono::milliseconds patience, Deadline deadline) {
  struct Attempt {
    std::string address;
    posix::FileDescriptor socket;
    bool connected = false;
    std::string received;
  };
  std::vector<Attempt> attempts;
  std::string faults;
  auto give_up = [&](Attempt& attempt, const std::string& why) {
    faults += (faults.empty() ? "" : "; ") + attempt.address + ": " + why;
    attempt.socket.reset();
  };
  for (const std::string& text : items_of(addresses)) {
    auto address = posix::TcpAddress::parse(text);
    if (!address) continue;
    auto begun = posix::begin_connecting(*address, std::nullopt);
    attempts.push_back({text, std::move(begun.socket), false, ""});
    if (!attempts.back().socket) give_up(attempts.back(), system_error("connect", begun.error).message);
  }
  for (;;) {
    std::vector<pollfd> polled;
    for (Attempt& attempt : attempts)
      polled.push_back({attempt.socket.get(), static_cast<short>(attempt.connected ? POLLIN : POLLOUT), 0});
    bool any = std::any_of(attempts.begin(), attempts.end(), [](const Attempt& a) { return bool(a.socket); });
    if (!any || deadline.passed())
      return Error(any ? ErrorCode::timeout : ErrorCode::peer_lost, "horovodrun cannot be reached at " + addresses +
                                                                        (any ? " in time" : "") +
                                                                        (faults.empty() ? "" : " (" + faults + ")"));
    ::poll(polled.data(), polled.size(), static_cast<int>(std::min<std::int64_t>(deadline.left().count() + 1, 1000)));
    for (std::size_t i = 0; i < attempts.size(); ++i) {
      Attempt& attempt = attempts[i];
      if (!attempt.socket || polled[i].revents == 0) continue;
      if (!attempt.connected) {
        int error = posix::outcome_of_connecting(attempt.socket.get());
        attempt.connected = true;
        if (error != 0) give_up(attempt, system_error("connect", error).message);
        else if (!posix::prepare_connection(attempt.socket.get(), patience) ||
                 ::write(attempt.socket.get(), token.data(), half) != static_cast<ssize_t>(half))
          give_up(attempt, "the connection broke");
        continue;
      }
      char bytes[half];
      ssize_t count = ::read(attempt.socket.get(), bytes, half - attempt.received.size());
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (count > 0) attempt.received.append(bytes, static_cast<std::size_t>(count));
      if (count <= 0) give_up(attempt, "closed the connection");
      else if (attempt.received.size() == half &&
               !are_equal_secrets(as_bytes(attempt.received), as_bytes(std::string_view(token).substr(half))))
        give_up(attempt, "something else than horovodrun answers there");
      else if (attempt.received.size() == half) return std::move(attempt.socket);
    }
  }
}

}  // namespace hvd::launcher
