#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "base/checksums/sha256.hpp"
#include "base/log.hpp"
#include "bootstrap/store/front_door.hpp"
#include "bootstrap/store/local_store.hpp"
#include "bootstrap/store/seats.hpp"
#include "bootstrap/store/verbs.hpp"
#include "native/posix/files/random.hpp"
#include "native/posix/sockets/unix_socket.hpp"
#include "native/posix/sockets/watch_list.hpp"

namespace hvd::bootstrap {
namespace {

using store::Verb;

constexpr std::size_t most_unsent = 256;  // limit for unsent answers to a client that does not read them
constexpr int most_at_once = 64;          // connections that are accepted for one event

struct Connection {
  posix::FileDescriptor socket;
  std::uint64_t number = 0;  // rises with every connection
  std::deque<store::SharedMessage> unsent;
};

}  // namespace

struct LocalStoreServer::State {
  Options options;
  posix::ListeningSocket listening;
  posix::WatchList events;
  FrontDoor door;
  std::string secret;
  std::vector<std::pair<std::string, std::string>> variables;
  std::map<std::uint64_t, Connection> connections;
  std::unique_ptr<StoreSeats> seats;
  std::uint64_t last_number = FrontDoor::of_clock;
  bool lacked_descriptors = false;
  Buffer incoming;

  void accept_all() {
    // Every user of the node can connect, so the ranks that are here have their turn between portions.
    for (int round = 0; round < most_at_once && door.is_open(); ++round) {
      auto accepted = posix::accept_from(listening.socket);
      if (!accepted) {
        if (!std::exchange(lacked_descriptors, true)) log::warning("local store: " + accepted.error().message);
        return door.rest();
      }
      if (!*accepted) return;
      auto process = posix::process_behind(*accepted);
      if (!process || process->uid != ::geteuid()) continue;
      std::uint64_t number = ++last_number;
      if (!events.add(accepted->get(), number)) continue;
      Connection& connection = connections[number];
      connection.socket = std::move(*accepted);
      connection.number = number;
      door.let_in(number);
    }
  }

  void put_out_the_slow() {
    for (std::uint64_t number : door.look_at_clock()) {
      read_from(number);
      if (door.has(number)) drop(number, "said nothing");
    }
  }

  // The connection may have ended when this call returns.
  void answer(std::uint64_t number, store::SharedMessage message) {
    auto found = connections.find(number);
    if (found == connections.end()) return;
    Connection& connection = found->second;
    if (connection.unsent.size() >= most_unsent) return drop(number, "did not read the answers to its requests");
    connection.unsent.push_back(std::move(message));
    if (connection.unsent.size() == 1) flush(number);
  }

  void flush(std::uint64_t number) {
    auto found = connections.find(number);
    if (found == connections.end()) return;
    Connection& connection = found->second;
    while (!connection.unsent.empty()) {
      auto sent = posix::send_message(connection.socket, connection.unsent.front()->bytes);
      if (!sent) return drop(number, sent.error().message);
      if (*sent == posix::Delivery::closed) return drop(number, "closed its connection");
      if (*sent == posix::Delivery::would_block) break;
      connection.unsent.pop_front();
    }
    (void)events.change(connection.socket.get(), number, !connection.unsent.empty());
  }

  // Ends a connection. `why` completes "rank 3 …".
  void drop(std::uint64_t number, std::string_view why) {
    if (connections.erase(number) == 0) return;
    door.let_go(number);
    seats->left(number, why);
  }

  void read_from(std::uint64_t number) {
    // Reads a few messages for each event of a connection, so that one rank which sends very many does not starve the
    // others.
    for (int round = 0; round < 16; ++round) {
      auto found = connections.find(number);
      if (found == connections.end()) return;
      posix::FileDescriptor unwanted;
      auto got = posix::receive_message(found->second.socket, incoming, unwanted);
      if (!got) return drop(number, "sent a message that is too long");
      if (*got == posix::Delivery::would_block) return;
      if (*got == posix::Delivery::closed) return drop(number, "ended or closed its connection");
      if (!handle(found->second, incoming)) return drop(number, "sent a message that is not of this protocol");
    }
  }

  int handle_events() {
    epoll_event ready[64];
    int count = ::epoll_wait(events.descriptor(), ready, 64, 0);
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

  // False if the message breaks the protocol. The call may end the connection.
  bool handle(const Connection& from, ConstBytes message) {
    if (seats->is_seated(from.number)) return seats->handle(from.number, message);
    ByteReader in(message);
    auto verb = static_cast<Verb>(in.get<std::uint8_t>());
    auto ticket = in.get<std::uint32_t>();
    auto magic = in.get<std::uint32_t>();
    StoreGuest guest;
    guest.wire_version = in.get<std::uint32_t>();
    auto their_secret = in.get_string();
    guest.rank = in.get<std::int32_t>();
    guest.size = in.get<std::int32_t>();
    guest.pid = in.get<std::int32_t>();
    if (!in.ok() || !in.at_end() || verb != Verb::hello || magic != store::magic) return false;
    std::uint64_t number = from.number;
    if (!are_equal_secrets(as_bytes(their_secret), as_bytes(secret))) {
      answer(number, std::make_shared<store::Message>(store::Message{store::message(Verb::stranger, ticket)}));
      return false;
    }
    if (seats->seat(number, ticket, guest)) door.let_go(number);
    return true;
  }
};

LocalStoreServer::LocalStoreServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
LocalStoreServer::~LocalStoreServer() = default;

Result<std::unique_ptr<LocalStoreServer>> LocalStoreServer::open(Options options) {
  if (options.size < 1)
    return Error(ErrorCode::invalid_argument,
                 "a local store needs at least 1 rank, not " + std::to_string(options.size));
  auto state = std::make_unique<State>();
  state->options = std::move(options);
  state->seats = std::make_unique<StoreSeats>(
      StoreSeats::Options{state->options.job, state->options.size, state->options.on_abort,
                          [raw = state.get()](std::uint64_t number, store::SharedMessage message) {
                            raw->answer(number, std::move(message));
                          }});
  state->incoming.reserve(store::largest_message);
  auto places = static_cast<std::size_t>(state->options.size) + FrontDoor::spare_places;
  make_room_for_descriptors(places);
  auto listening = posix::listen_on_unix_socket();
  if (!listening) return std::move(listening.error());
  state->listening = std::move(*listening);
  state->secret = posix::random_hex(16);
  state->variables = {{local_store::address_variable, state->listening.address},
                      {local_store::secret_variable, state->secret}};
  auto events = posix::WatchList::open();
  if (!events) return events.error();
  state->events = std::move(*events);
  HVD_RETURN_IF_ERROR(
      state->door.open(state->events, {state->listening.socket.get()}, places, state->options.strangers_time));
  return std::unique_ptr<LocalStoreServer>(new LocalStoreServer(std::move(state)));
}

const std::vector<std::pair<std::string, std::string>>& LocalStoreServer::variables() const {
  return state_->variables;
}
int LocalStoreServer::descriptor() const {
  return state_->events.descriptor();
}

void LocalStoreServer::serve() {
  state_->handle_events();
}

void LocalStoreServer::rank_ended(Rank rank, std::string_view how) {
  if (!state_->seats->is_rank(rank.value)) return;
  // What the rank said before it ended still counts. The loop is bounded, because other ranks may send all the time.
  for (int round = 0; round < 64 && state_->handle_events() > 0;) ++round;
  state_->seats->lose(rank, how);
}

}  // namespace hvd::bootstrap
