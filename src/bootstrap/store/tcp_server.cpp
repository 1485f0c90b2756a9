#include "bootstrap/store/tcp_server.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>

#include "base/deadline.hpp"
#include "base/log.hpp"
#include "bootstrap/store/front_door.hpp"
#include "bootstrap/store/pieces.hpp"
#include "bootstrap/store/sealed_stream.hpp"
#include "bootstrap/store/verbs.hpp"
#include "native/posix/processes/fork_guard.hpp"
#include "native/posix/processes/thread.hpp"
#include "native/posix/sockets/tcp_socket.hpp"
#include "native/posix/sockets/watch_list.hpp"

namespace hvd::bootstrap {
namespace {

using store::Verb;

constexpr auto strangers_time = std::chrono::seconds(10);
constexpr std::size_t most_unsent_bytes = 64 << 20;  // limit for unsent answers to a client that does not read them
constexpr auto lingering_time = std::chrono::seconds(5);

struct SealedConnection {
  std::unique_ptr<SealedStream> stream;
  std::string from;  // address of the other end
  bool also_writable = false;
};

}  // namespace

struct TcpStoreServer::State {
  Options options;
  std::vector<posix::FileDescriptor> listeners;
  posix::WatchList events;
  FrontDoor door;
  std::string addresses;
  std::uint16_t port = 0;
  std::map<std::uint64_t, SealedConnection> connections;
  std::unique_ptr<StoreGenerations> seats;
  std::unique_ptr<StorePieces> pieces;
  std::uint64_t last_number = FrontDoor::of_clock;
  bool lacked_descriptors = false, was_ever_crowded = false;
  int warnings_left = 8;  // number of warnings about strangers that may still be written; port scanners come often
  Buffer incoming;

  ~State() {
    for (auto& [number, connection] : connections) posix::stop_withholding(connection.stream->descriptor());
    for (auto& listener : listeners) posix::stop_withholding(listener.get());
  }

  void accept_all() {
    for (posix::FileDescriptor& listener : listeners) {
      while (door.is_open()) {
        auto accepted = posix::accept_from_tcp(listener.get());
        if (!accepted) {
          if (!std::exchange(lacked_descriptors, true))
            log::warning("rendezvous: " + accepted.error().message + ": new connections have to wait (ulimit -n)");
          return door.rest();
        }
        if (!accepted->socket) break;
        admit(std::move(accepted->socket), accepted->from ? accepted->from->text() : "an unknown address");
      }
    }
  }

  void admit(posix::FileDescriptor socket, std::string from) {
    std::uint64_t number = ++last_number;
    if (!posix::prepare_connection(socket.get(), store::lost_host_time)) return;
    if (!events.add(socket.get(), number)) return;
    posix::withhold_from_children(socket.get());
    SealedConnection& connection = connections[number];
    connection.stream = std::make_unique<SealedStream>(std::move(socket), SealedStream::Side::accepted, options.secret,
                                                       store::largest_message);
    connection.from = std::move(from);
    door.let_in(number);
    flush(number);
  }

  void put_out_the_slow() {
    const bool is_crowded = door.is_crowded();
    const auto overdue = door.look_at_clock();
    if (is_crowded && !overdue.empty() && !std::exchange(was_ever_crowded, true))
      log::warning("rendezvous: " + std::to_string(overdue.size()) + " connections, the oldest from " +
                   connections[overdue.front()].from +
                   ", held all places and did not prove that they belong to the job; such ones are dropped early");
    for (std::uint64_t number : overdue) {
      read_from(number);
      if (door.has(number)) drop(number, "did not prove in time that it belongs to the job");
    }
  }

  // Ends a connection. `why` completes both "rank 3 …" and "a connection from 10.0.0.9:4711 …".
  void drop(std::uint64_t number, const std::string& why) {
    auto found = connections.find(number);
    if (found == connections.end()) return;
    SealedConnection gone = std::move(found->second);
    connections.erase(found);
    posix::stop_withholding(gone.stream->descriptor());
    if (door.has(number)) {
      // A connection that said nothing at all may come from a rank that has found a better address of this host.
      bool is_news = !gone.stream->is_untouched() && warnings_left > 0;
      auto level = is_news ? log::Level::warning : log::Level::debug;
      if (log::enabled(level))
        log::write(level, "rendezvous: a connection from " + gone.from + " was dropped: it " + why +
                              (is_news && --warnings_left == 0 ? "; further ones will not be reported" : ""));
      door.let_go(number);
    }
    if (pieces->is_in(number)) pieces->left(number);
    else seats->left(number, why);
  }

  // The connection may have ended when this call returns.
  void answer(std::uint64_t number, store::SharedMessage message) {
    auto found = connections.find(number);
    if (found == connections.end()) return;
    if (found->second.stream->unsent_bytes() > most_unsent_bytes)
      return drop(number, "did not read the answers to its requests");
    (void)found->second.stream->send(std::move(message));
    flush(number);
  }

  void flush(std::uint64_t number) {
    auto found = connections.find(number);
    if (found == connections.end()) return;
    SealedConnection& connection = found->second;
    posix::Delivery flushed = connection.stream->flush();
    if (flushed == posix::Delivery::closed) return drop(number, "closed its connection");
    bool more = flushed == posix::Delivery::would_block;
    if (more != connection.also_writable) (void)events.change(connection.stream->descriptor(), number, more);
    connection.also_writable = more;
  }

  void read_from(std::uint64_t number) {
    // Reads until no whole message is left. What is in the stream's own memory must be read at once, because no event
    // announces it.
    for (;;) {
      auto found = connections.find(number);
      if (found == connections.end()) return;
      auto got = found->second.stream->receive(incoming);
      if (!got)
        return drop(number, door.has(number) ? "does not know the job's secret"
                                             : "sent something that is not of this protocol");
      if (*got == posix::Delivery::would_block) return flush(number);
      if (*got == posix::Delivery::closed)
        return drop(number, door.has(number) ? "closed it before it had proven that it belongs to the job"
                                             : "ended or closed its connection");
      if (!handle(number, incoming)) return drop(number, "sent a message that is not of this protocol");
    }
  }

  // False if the message breaks the protocol. The call may end the connection.
  bool handle(std::uint64_t number, ConstBytes message) {
    if (seats->is_seated(number)) return seats->handle(number, message);
    if (pieces->is_in(number)) return pieces->handle(number, message);
    ByteReader in(message);
    auto verb = static_cast<Verb>(in.get<std::uint8_t>());
    auto ticket = in.get<std::uint32_t>();
    StoreGuest guest;
    guest.wire_version = in.get<std::uint32_t>();
    guest.rank = in.get<std::int32_t>();
    guest.size = in.get<std::int32_t>();
    guest.pid = in.get<std::int32_t>();
    if (!in.ok() || !in.at_end() || verb != Verb::hello) return false;
    const bool is_visitor =
        options.takes_visitors && guest.rank == StorePieces::visitors_rank && guest.wire_version == store::wire_version;
    if (is_visitor) pieces->admit(number, ticket);
    if (is_visitor || seats->seat(number, ticket, guest)) door.let_go(number);
    return true;
  }

  int handle_events() {
    epoll_event ready[512];
    int count = ::epoll_wait(events.descriptor(), ready, 512, 0);
    for (int i = 0; i < count; ++i) {
      std::uint64_t number = ready[i].data.u64;
      if (number == FrontDoor::of_listeners) accept_all();
      if (number == FrontDoor::of_clock) put_out_the_slow();
      if (number <= FrontDoor::of_clock) continue;
      if ((ready[i].events & EPOLLOUT) != 0) flush(number);
      if ((ready[i].events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) read_from(number);
    }
    return count;
  }

  Status lose(Rank rank, std::string_view how) {
    if (!seats->is_rank(rank.value))
      return Error(ErrorCode::invalid_argument,
                   "there is no rank " + std::to_string(rank.value) + " of " + std::to_string(options.size));
    seats->lose(rank, how);
    return {};
  }

  bool is_wanted(const std::string& interface) const {
    const auto& wanted = options.interfaces;
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), interface) != wanted.end();
  }

  // Listens on all wanted addresses with the same port.
  Status listen_on(std::int64_t wanted_port) {
    auto found = posix::interfaces();
    if (!found) return std::move(found.error());
    // The addresses that reach this host only, or any host, come last: bridges of containers have addresses that exist
    // on every host, and the loopback reaches only this host.
    std::stable_sort(found->begin(), found->end(), [](const posix::Interface& a, const posix::Interface& b) {
      auto order = [](const posix::Interface& it) { return it.is_loopback ? 2 : it.is_bridge ? 1 : 0; };
      return order(a) < order(b);
    });
    listeners.clear();
    addresses.clear();
    port = static_cast<std::uint16_t>(wanted_port);
    for (const posix::Interface& interface : *found) {
      if (!is_wanted(interface.name)) continue;
      for (const posix::InterfaceAddress& each : interface.addresses) {
        if (each.address.is_link_local()) continue;  // a link-local address means another host on each interface
        auto listener = posix::listen_on_tcp(each.address.with_port(port));
        if (!listener) return std::move(listener.error());
        if (!*listener) return Error(ErrorCode::system, "port " + std::to_string(port) + " is taken");
        if (port == 0) port = posix::TcpAddress::here(listener->get())->port();
        std::string host = each.address.host();
        addresses += (addresses.empty() ? "" : ",") + (host.find(':') != std::string::npos ? "[" + host + "]" : host);
        listeners.push_back(std::move(*listener));
      }
    }
    if (!listeners.empty()) return {};
    return posix::none_of_the_interfaces(options.interfaces, *found);
  }

  Status listen_somewhere() {
    constexpr int tries = 20;  // the port that the kernel chose for the first address may be in use on another address
    bool ranged = options.first_port > 0;
    std::int64_t count = ranged ? options.last_port - options.first_port + 1 : tries;
    Status last = Error(ErrorCode::invalid_argument, "a range of ports without any");
    for (std::int64_t i = 0; i < count; ++i) {
      last = listen_on(ranged ? options.first_port + i : 0);
      if (last || last.error().code == ErrorCode::invalid_argument) break;
    }
    return last;
  }
};

TcpStoreServer::TcpStoreServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
TcpStoreServer::~TcpStoreServer() = default;

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::open(Options options) {
  if (options.size < 0 || options.secret.size() < 16)
    return Error(ErrorCode::invalid_argument,
                 "a store needs a number of ranks and a secret of at least 16 bytes; found " +
                     std::to_string(options.size) + " and " + std::to_string(options.secret.size()));
  auto state = std::make_unique<State>();
  state->options = std::move(options);
  state->seats = std::make_unique<StoreGenerations>(
      StoreGenerations::Options{state->options.job, state->options.size, state->options.on_abort, state->options.on_ask,
                                [raw = state.get()](std::uint64_t number, store::SharedMessage message) {
                                  raw->answer(number, std::move(message));
                                }});
  state->pieces = std::make_unique<StorePieces>(
      StorePieces::Options{state->options.job,
                           [raw = state.get()](std::uint64_t number, store::SharedMessage message) {
                             raw->answer(number, std::move(message));
                           },
                           [raw = state.get()](Rank rank, std::string_view how) { return raw->lose(rank, how); }});
  HVD_RETURN_IF_ERROR(state->listen_somewhere());
  auto events = posix::WatchList::open();
  if (!events) return events.error();
  state->events = std::move(*events);
  std::vector<int> doors;
  for (posix::FileDescriptor& listener : state->listeners) {
    posix::withhold_from_children(listener.get());
    doors.push_back(listener.get());
  }
  auto places = static_cast<std::size_t>(state->options.size) + FrontDoor::spare_places;
  make_room_for_descriptors(places);
  HVD_RETURN_IF_ERROR(state->door.open(state->events, std::move(doors), places, strangers_time));
  return std::unique_ptr<TcpStoreServer>(new TcpStoreServer(std::move(state)));
}

const std::string& TcpStoreServer::addresses() const {
  return state_->addresses;
}
std::uint16_t TcpStoreServer::port() const {
  return state_->port;
}
int TcpStoreServer::descriptor() const {
  return state_->events.descriptor();
}

std::vector<std::pair<std::string, std::string>> TcpStoreServer::variables() const {
  return {{"HOROVOD_GLOO_RENDEZVOUS_ADDR", state_->addresses},
          {"HOROVOD_GLOO_RENDEZVOUS_PORT", std::to_string(state_->port)},
          {"HOROVOD_SECRET_KEY", state_->options.secret}};
}

void TcpStoreServer::serve() {
  state_->handle_events();
}

bool TcpStoreServer::is_idle() const {
  return state_->seats->is_empty();
}

void TcpStoreServer::rank_ended(Rank rank, std::string_view how) {
  if (!state_->seats->is_rank(rank.value)) return;
  // What the rank said before it ended still counts. The loop is bounded, because other ranks may send all the time.
  for (int round = 0; round < 64 && state_->handle_events() > 0;) ++round;
  state_->seats->lose(rank, how);
}

StoreGenerations& TcpStoreServer::generations() {
  return *state_->seats;
}

Result<std::unique_ptr<TcpStoreThread>> TcpStoreThread::start(TcpStoreServer::Options options) {
  auto server = TcpStoreServer::open(std::move(options));
  if (!server) return std::move(server.error());
  std::unique_ptr<TcpStoreThread> made(new TcpStoreThread);
  made->server_ = std::move(*server);
  made->stop_ = posix::FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made->stop_) return system_error("cannot start the store of the ranks (eventfd)", errno);
  auto thread = posix::start_thread("hvd-store", [server = made->server_.get(), stop = made->stop_.get()] {
    Deadline end = Deadline::never();
    bool stopping = false;
    while (!stopping || (!server->is_idle() && !end.passed())) {
      pollfd entries[] = {{server->descriptor(), POLLIN, 0}, {stopping ? -1 : stop, POLLIN, 0}};
      ::poll(entries, 2, stopping ? static_cast<int>(end.left().count() + 1) : -1);
      server->serve();
      if (stopping || entries[1].revents == 0) continue;
      stopping = true;
      end = Deadline::after(lingering_time);
    }
  });
  if (!thread) return std::move(thread.error());
  made->thread_ = std::move(*thread);
  return made;
}

TcpStoreThread::~TcpStoreThread() {
  if (!thread_.joinable()) return;
  std::uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

}  // namespace hvd::bootstrap
