#include "bootstrap/store/tcp_server.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>

#include "base/deadline.hpp"
#include "bootstrap/store/connections.hpp"
#include "bootstrap/store/pieces.hpp"
#include "bootstrap/store/sealed_stream.hpp"
#include "bootstrap/store/verbs.hpp"
#include "native/posix/processes/fork_guard.hpp"
#include "native/posix/processes/thread.hpp"
#include "native/posix/sockets/tcp_socket.hpp"

namespace hvd::bootstrap {
namespace {

using store::Verb;

constexpr auto strangers_time = std::chrono::seconds(10);
constexpr std::size_t most_unsent_bytes = 64 << 20;
constexpr auto lingering_time = std::chrono::seconds(5);

}  // namespace

struct TcpStoreServer::State {
  explicit State(Options the_options) : options(std::move(the_options)) {}
  ~State() {
    for (auto& listener : listeners) posix::stop_withholding(listener.get());
  }

  const Options options;
  std::vector<posix::FileDescriptor> listeners;
  std::string addresses;
  std::uint16_t port = 0;
  const std::function<void(std::uint64_t, store::SharedMessage)> answer =
      [this](std::uint64_t number, store::SharedMessage message) { connections.answer(number, std::move(message)); };
  StoreGenerations seats{{options.job, options.size, options.on_abort, options.on_ask, answer}};
  StorePieces pieces{{options.job, answer, [this](Rank rank, std::string_view how) { return lose(rank, how); }}};
  StoreConnections<SealedStream, State> connections{
      *this, {"rendezvous", options.size, strangers_time, most_unsent_bytes, std::numeric_limits<int>::max()}};

  Result<bool> accept(int listener) {
    auto accepted = posix::accept_from_tcp(listener);
    if (!accepted) return std::move(accepted.error());
    if (!accepted->socket) return false;
    if (!posix::prepare_connection(accepted->socket.get(), store::lost_host_time)) return true;
    auto stream = std::make_unique<SealedStream>(std::move(accepted->socket), SealedStream::Side::accepted,
                                                 options.secret, store::largest_message);
    connections.admit(std::move(stream), accepted->from ? accepted->from->text() : "an unknown address");
    return true;
  }
  void left(std::uint64_t number, std::string_view why) {
    if (pieces.is_in(number)) pieces.left(number);
    else seats.left(number, why);
  }

  // False if the message breaks the protocol. The call may end the connection.
  bool handle(std::uint64_t number, ConstBytes message) {
    if (seats.is_seated(number)) return seats.handle(number, message);
    if (pieces.is_in(number)) return pieces.handle(number, message);
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
    if (is_visitor) pieces.admit(number, ticket);
    if (is_visitor || seats.seat(number, ticket, guest)) connections.trust(number);
    return true;
  }

  Status lose(Rank rank, std::string_view how) {
    if (!seats.is_rank(rank.value))
      return Error(ErrorCode::invalid_argument,
                   "there is no rank " + std::to_string(rank.value) + " of " + std::to_string(options.size));
    seats.lose(rank, how);
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
  auto state = std::make_unique<State>(std::move(options));
  HVD_RETURN_IF_ERROR(state->listen_somewhere());
  std::vector<int> doors;
  for (posix::FileDescriptor& listener : state->listeners) {
    posix::withhold_from_children(listener.get());
    doors.push_back(listener.get());
  }
  HVD_RETURN_IF_ERROR(state->connections.open(std::move(doors)));
  return std::unique_ptr<TcpStoreServer>(new TcpStoreServer(std::move(state)));
}

const std::string& TcpStoreServer::addresses() const {
  return state_->addresses;
}
std::uint16_t TcpStoreServer::port() const {
  return state_->port;
}
int TcpStoreServer::descriptor() const {
  return state_->connections.descriptor();
}

std::vector<std::pair<std::string, std::string>> TcpStoreServer::variables() const {
  return {{"HOROVOD_GLOO_RENDEZVOUS_ADDR", state_->addresses},
          {"HOROVOD_GLOO_RENDEZVOUS_PORT", std::to_string(state_->port)},
          {"HOROVOD_SECRET_KEY", state_->options.secret}};
}

void TcpStoreServer::serve() {
  state_->connections.serve();
}

bool TcpStoreServer::is_idle() const {
  return state_->seats.is_empty();
}

void TcpStoreServer::rank_ended(Rank rank, std::string_view how) {
  if (!state_->seats.is_rank(rank.value)) return;
  state_->connections.serve_what_was_sent();  // what the rank said before it ended still counts
  state_->seats.lose(rank, how);
}

StoreGenerations& TcpStoreServer::generations() {
  return state_->seats;
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
