#include <unistd.h>

#include <deque>
#include <utility>

#include "base/checksums/sha256.hpp"
#include "bootstrap/store/connections.hpp"
#include "bootstrap/store/local_store.hpp"
#include "bootstrap/store/seats.hpp"
#include "bootstrap/store/verbs.hpp"
#include "native/posix/files/random.hpp"
#include "native/posix/sockets/unix_socket.hpp"

namespace hvd::bootstrap {
namespace {

using store::Verb;

constexpr std::size_t most_unsent = 256;  // limit for unsent answers to a client that does not read them

class UnixStream {
 public:
  explicit UnixStream(posix::FileDescriptor socket) : socket_(std::move(socket)) {}
  int descriptor() const { return socket_.get(); }
  // Each message counts as if it were as long as it may be.
  std::size_t unsent_bytes() const { return unsent_.size() * store::largest_message; }
  bool is_untouched() const { return false; }
  void send(store::SharedMessage message) { unsent_.push_back(std::move(message)); }
  posix::Delivery flush() {
    for (; !unsent_.empty(); unsent_.pop_front()) {
      auto sent = posix::send_message(socket_, unsent_.front()->bytes);
      if (!sent || *sent != posix::Delivery::done) return sent ? *sent : posix::Delivery::closed;
    }
    return posix::Delivery::done;
  }
  Result<posix::Delivery> receive(Buffer& message) {
    posix::FileDescriptor unwanted;
    return posix::receive_message(socket_, message, unwanted);
  }

 private:
  posix::FileDescriptor socket_;
  std::deque<store::SharedMessage> unsent_;
};

}  // namespace

struct LocalStoreServer::State {
  explicit State(Options the_options) : options(std::move(the_options)) {}

  const Options options;
  posix::ListeningSocket listening;
  const std::string secret = posix::random_hex(16);
  std::vector<std::pair<std::string, std::string>> variables;
  StoreSeats seats{
      {options.job, options.size, options.on_abort,
       [this](std::uint64_t number, store::SharedMessage message) { connections.answer(number, std::move(message)); }}};
  StoreConnections<UnixStream, State> connections{
      *this, {"local store", options.size, options.strangers_time, (most_unsent - 1) * store::largest_message, 16}};

  Result<bool> accept(int) {
    auto accepted = posix::accept_from(listening.socket);
    if (!accepted) return std::move(accepted.error());
    if (!*accepted) return false;
    // Every user of the node can connect.
    auto process = posix::process_behind(*accepted);
    if (process && process->uid == ::geteuid())
      connections.admit(std::make_unique<UnixStream>(std::move(*accepted)), "");
    return true;
  }
  void left(std::uint64_t number, std::string_view why) { seats.left(number, why); }

  // False if the message breaks the protocol. The call may end the connection.
  bool handle(std::uint64_t number, ConstBytes message) {
    if (seats.is_seated(number)) return seats.handle(number, message);
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
    if (!are_equal_secrets(as_bytes(their_secret), as_bytes(secret))) {
      connections.answer(number,
                         std::make_shared<store::Message>(store::Message{store::message(Verb::stranger, ticket)}));
      return false;
    }
    if (seats.seat(number, ticket, guest)) connections.trust(number);
    return true;
  }
};

LocalStoreServer::LocalStoreServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
LocalStoreServer::~LocalStoreServer() = default;

Result<std::unique_ptr<LocalStoreServer>> LocalStoreServer::open(Options options) {
  if (options.size < 1)
    return Error(ErrorCode::invalid_argument,
                 "a local store needs at least 1 rank, not " + std::to_string(options.size));
  auto state = std::make_unique<State>(std::move(options));
  auto listening = posix::listen_on_unix_socket();
  if (!listening) return std::move(listening.error());
  state->listening = std::move(*listening);
  state->variables = {{local_store::address_variable, state->listening.address},
                      {local_store::secret_variable, state->secret}};
  HVD_RETURN_IF_ERROR(state->connections.open({state->listening.socket.get()}));
  return std::unique_ptr<LocalStoreServer>(new LocalStoreServer(std::move(state)));
}

const std::vector<std::pair<std::string, std::string>>& LocalStoreServer::variables() const {
  return state_->variables;
}
int LocalStoreServer::descriptor() const {
  return state_->connections.descriptor();
}

void LocalStoreServer::serve() {
  state_->connections.serve();
}

void LocalStoreServer::rank_ended(Rank rank, std::string_view how) {
  if (!state_->seats.is_rank(rank.value)) return;
  state_->connections.serve_what_was_sent();  // what the rank said before it ended still counts
  state_->seats.lose(rank, how);
}

}  // namespace hvd::bootstrap
