#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "base/log.hpp"
#include "bootstrap/local_store.hpp"
#include "bootstrap/local_store_verbs.hpp"
#include "native/posix/unix_socket.hpp"

namespace hvd::bootstrap {
namespace {

using local_store::Verb;

constexpr std::size_t most_strangers = 64;             // connected, but not in yet; the oldest must go
constexpr std::size_t most_unsent = 256;               // answers that a client does not read
constexpr std::size_t most_stored_bytes = 256u << 20;  // of all ranks together
constexpr std::size_t longest_reason = 4096;

struct Connection {
  posix::FileDescriptor socket;
  std::uint64_t number = 0;  // rises with every connection
  Rank rank{-1};             // -1: a stranger
  std::int32_t pid = 0;
  std::deque<Buffer> unsent;
  bool left = false;
};

struct WaitingGet {
  std::uint64_t connection = 0;
  std::uint32_t ticket = 0;
};

struct Seated {
  std::optional<std::uint64_t> connection;
  std::uint64_t fences = 0;  // entered so far
  std::optional<std::uint32_t> fence_ticket;
  std::string lost;  // how it ended; empty while it lives
  std::map<std::string, Buffer, std::less<>> values;
  std::multimap<std::string, WaitingGet, std::less<>> waiting;
};

Result<std::string> new_secret() {
  unsigned char random[16];
  if (::getrandom(random, sizeof random, 0) != static_cast<ssize_t>(sizeof random))
    return system_error("cannot draw a secret (getrandom)", errno);
  std::string text;
  for (unsigned char byte : random) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

// Takes as long for a wrong first digit as for a wrong last one.
bool equal_secrets(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

std::string clipped(std::string_view text) {
  return std::string(text.substr(0, longest_reason));
}

}  // namespace

struct LocalStoreServer::State {
  Options options;
  posix::ListeningSocket listening;
  posix::FileDescriptor events;  // epoll: the listener is number 0, connections their own number
  std::string secret;
  std::vector<std::pair<std::string, std::string>> variables;
  std::map<std::uint64_t, Connection> connections;
  std::vector<Seated> seats;
  std::uint64_t last_number = 0;
  std::uint64_t fences_done = 0;
  std::size_t stored_bytes = 0;
  Buffer incoming;

  Seated& seat(Rank rank) { return seats[static_cast<std::size_t>(rank.value)]; }
  bool is_rank(std::int32_t number) const { return number >= 0 && number < options.size; }

  Status watch(int descriptor, std::uint64_t number, bool also_writable, int operation) {
    epoll_event event{};
    event.events = EPOLLIN | (also_writable ? static_cast<std::uint32_t>(EPOLLOUT) : 0u);
    event.data.u64 = number;
    if (::epoll_ctl(events.get(), operation, descriptor, &event) != 0) return system_error("epoll_ctl", errno);
    return {};
  }

  void accept_all() {
    for (;;) {
      auto accepted = posix::accept_from(listening.socket);
      if (!accepted) {
        log::warning("local store: " + accepted.error().message);
        return;
      }
      if (!*accepted) return;
      auto process = posix::process_behind(*accepted);
      if (!process || process->uid != ::geteuid()) continue;
      make_room_for_a_stranger();
      std::uint64_t number = ++last_number;
      if (!watch(accepted->get(), number, false, EPOLL_CTL_ADD)) continue;
      Connection& connection = connections[number];
      connection.socket = std::move(*accepted);
      connection.number = number;
      connection.pid = process->pid;
    }
  }

  void make_room_for_a_stranger() {
    std::size_t strangers = 0;
    auto oldest = connections.end();
    for (auto at = connections.begin(); at != connections.end(); ++at) {
      if (at->second.rank.value >= 0) continue;
      if (strangers++ == 0) oldest = at;
    }
    if (strangers >= most_strangers) connections.erase(oldest);
  }

  // The connection may be gone afterwards.
  void answer(std::uint64_t number, Buffer message) {
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
      auto sent = posix::send_message(connection.socket, connection.unsent.front());
      if (!sent) return drop(number, sent.error().message);
      if (*sent == posix::Delivery::closed) return drop(number, "closed its connection");
      if (*sent == posix::Delivery::would_block) break;
      connection.unsent.pop_front();
    }
    (void)watch(connection.socket.get(), number, !connection.unsent.empty(), EPOLL_CTL_MOD);
  }

  void answer_done(std::uint64_t number, std::uint32_t ticket) {
    answer(number, local_store::message(Verb::done, ticket));
  }
  void answer_failed(std::uint64_t number, std::uint32_t ticket, ErrorCode code, std::string_view text) {
    Buffer buffer = local_store::message(Verb::failed, ticket);
    ByteWriter out(buffer);
    out.put(static_cast<std::uint8_t>(code));
    out.put_string(text);
    answer(number, std::move(buffer));
  }
  void answer_value(std::uint64_t number, std::uint32_t ticket, ConstBytes value) {
    Buffer buffer = local_store::message(Verb::value, ticket);
    ByteWriter out(buffer);
    out.put(static_cast<std::uint32_t>(value.size()));
    out.put_raw(value.data(), value.size());
    answer(number, std::move(buffer));
  }

  // Ends a connection. `why` completes "rank 3 …"; of a rank that left in order nothing is held against it.
  void drop(std::uint64_t number, std::string_view why) {
    auto found = connections.find(number);
    if (found == connections.end()) return;
    Connection gone = std::move(found->second);
    connections.erase(found);
    if (gone.rank.value < 0) return;
    Seated& mine = seat(gone.rank);
    mine.connection.reset();
    mine.fence_ticket.reset();
    if (!gone.left) lose(gone.rank, why);
  }

  void lose(Rank rank, std::string_view how) {
    Seated& mine = seat(rank);
    if (!mine.lost.empty()) return;
    mine.lost = clipped(how);
    auto waiting = std::move(mine.waiting);
    mine.waiting.clear();
    for (auto& [key, get] : waiting)
      answer_failed(get.connection, get.ticket, ErrorCode::peer_lost, missing(rank, key));
    settle_fence();
  }

  std::string missing(Rank rank, std::string_view key) {
    return "rank " + std::to_string(rank.value) + " " + seat(rank).lost + " before it had put \"" + std::string(key) +
           "\"";
  }

  // The current fence ends when all are in, and fails when one that is not in is lost.
  void settle_fence() {
    std::string lost;
    bool complete = true;
    for (int rank = 0; rank < options.size; ++rank) {
      const Seated& each = seat(Rank{rank});
      if (each.fences > fences_done) continue;
      complete = false;
      if (!each.lost.empty() && lost.empty())
        lost = "rank " + std::to_string(rank) + " " + each.lost + " while the others waited for it at the start";
    }
    if (!complete && lost.empty()) return;
    if (complete) ++fences_done;
    std::vector<std::pair<std::uint64_t, std::uint32_t>> waiting;  // first all, since an answer can end a connection
    for (Seated& each : seats)
      if (auto ticket = std::exchange(each.fence_ticket, std::nullopt); ticket && each.connection)
        waiting.emplace_back(*each.connection, *ticket);
    for (auto [number, ticket] : waiting) {
      if (complete) answer_done(number, ticket);
      else answer_failed(number, ticket, ErrorCode::peer_lost, lost);
    }
  }

  void read_from(std::uint64_t number) {
    // One round per readable event and connection: a flood from one rank does not starve the others.
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
    int count = ::epoll_wait(events.get(), ready, 64, 0);
    for (int i = 0; i < count; ++i) {
      std::uint64_t number = ready[i].data.u64;
      if (number == 0) {
        accept_all();
        continue;
      }
      if ((ready[i].events & EPOLLOUT) != 0) flush(number);
      if ((ready[i].events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) read_from(number);
    }
    return count;
  }

  // False if the message is not of the protocol. May end the connection.
  bool handle(Connection& from, ConstBytes message) {
    ByteReader in(message);
    auto verb = static_cast<Verb>(in.get<std::uint8_t>());
    auto ticket = in.get<std::uint32_t>();
    if (!in.ok()) return false;
    if (from.rank.value < 0) return verb == Verb::hello && greet(from, ticket, in);
    switch (verb) {
      case Verb::put: return put(from, ticket, in);
      case Verb::get: return get(from, ticket, in);
      case Verb::fence: return in.at_end() && fence(from, ticket);
      case Verb::abort: {
        std::string reason = clipped(in.get_string());
        if (!in.ok() || !in.at_end()) return false;
        if (options.on_abort) options.on_abort(from.rank, reason);
        return true;
      }
      case Verb::leave: from.left = true; return in.at_end();
      default: return false;
    }
  }

  bool greet(Connection& from, std::uint32_t ticket, ByteReader& in) {
    auto magic = in.get<std::uint32_t>();
    auto version = in.get<std::uint32_t>();
    auto their_secret = in.get_string();
    auto rank = in.get<std::int32_t>();
    auto size = in.get<std::int32_t>();
    auto pid = in.get<std::int32_t>();
    if (!in.ok() || !in.at_end() || magic != local_store::magic || !equal_secrets(their_secret, secret)) return false;
    std::string refusal;
    ErrorCode code = ErrorCode::invalid_argument;
    if (version != local_store::wire_version) {
      code = ErrorCode::mismatch;
      refusal = "the launcher's local store speaks version " + std::to_string(local_store::wire_version) +
                ", this rank version " + std::to_string(version) + ": use one Horovod for horovodrun and the program";
    } else if (size != options.size || !is_rank(rank)) {
      refusal = "the launcher started " + std::to_string(options.size) +
                " ranks, but this process says that it is rank " + std::to_string(rank) + " of " +
                std::to_string(size) + " (HOROVOD_RANK, HOROVOD_SIZE)";
    } else if (!seat(Rank{rank}).lost.empty()) {
      code = ErrorCode::peer_lost;
      refusal =
          "rank " + std::to_string(rank) + " " + seat(Rank{rank}).lost + "; another process cannot take its place";
    } else if (auto taken = seat(Rank{rank}).connection) {
      refusal = "rank " + std::to_string(rank) + " is process " + std::to_string(connections.at(*taken).pid) +
                " already; process " + std::to_string(pid) +
                " has inherited its HOROVOD_RANK: a child of a rank cannot take part by itself";
    }
    if (!refusal.empty()) {
      answer_failed(from.number, ticket, code, refusal);
      return true;
    }
    from.rank = Rank{rank};
    from.pid = pid;
    seat(from.rank).connection = from.number;
    Buffer buffer = local_store::message(Verb::welcome, ticket);
    ByteWriter(buffer).put_string(options.job);
    answer(from.number, std::move(buffer));
    return true;
  }

  bool put(Connection& from, std::uint32_t ticket, ByteReader& in) {
    std::string key(in.get_string());
    ConstBytes value = as_bytes(in.get_string());
    if (!in.ok() || !in.at_end() || key.empty() || key.size() > local_store::largest_key) return false;
    if (value.size() > local_store::largest_value) return false;
    Seated& mine = seat(from.rank);
    std::uint64_t number = from.number;
    if (mine.values.contains(key)) {
      answer_failed(number, ticket, ErrorCode::invalid_argument, "\"" + key + "\" was put already; a key is used once");
      return true;
    }
    if (stored_bytes + key.size() + value.size() > most_stored_bytes) {
      answer_failed(number, ticket, ErrorCode::out_of_memory,
                    "the local store holds " + std::to_string(stored_bytes) + " bytes and takes at most " +
                        std::to_string(most_stored_bytes));
      return true;
    }
    stored_bytes += key.size() + value.size();
    mine.values.emplace(key, Buffer(value.begin(), value.end()));
    answer_done(number, ticket);
    auto [first, last] = mine.waiting.equal_range(key);
    std::vector<WaitingGet> waiting;
    for (auto at = first; at != last; ++at) waiting.push_back(at->second);
    mine.waiting.erase(first, last);
    for (const WaitingGet& get : waiting) answer_value(get.connection, get.ticket, value);
    return true;
  }

  bool get(Connection& from, std::uint32_t ticket, ByteReader& in) {
    auto rank = in.get<std::int32_t>();
    std::string key(in.get_string());
    if (!in.ok() || !in.at_end() || !is_rank(rank) || key.empty() || key.size() > local_store::largest_key)
      return false;
    Seated& theirs = seat(Rank{rank});
    if (auto found = theirs.values.find(key); found != theirs.values.end())
      answer_value(from.number, ticket, found->second);
    else if (!theirs.lost.empty()) answer_failed(from.number, ticket, ErrorCode::peer_lost, missing(Rank{rank}, key));
    else theirs.waiting.emplace(std::move(key), WaitingGet{from.number, ticket});
    return true;
  }

  bool fence(Connection& from, std::uint32_t ticket) {
    Seated& mine = seat(from.rank);
    if (mine.fence_ticket) return false;  // a client has one request at a time
    ++mine.fences;
    mine.fence_ticket = ticket;
    settle_fence();
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
  state->seats.resize(static_cast<std::size_t>(state->options.size));
  state->incoming.reserve(local_store::largest_message);
  auto listening = posix::listen_on_unix_socket();
  if (!listening) return std::move(listening.error());
  state->listening = std::move(*listening);
  auto secret = new_secret();
  if (!secret) return std::move(secret.error());
  state->secret = std::move(*secret);
  state->variables = {{local_store::address_variable, state->listening.address},
                      {local_store::secret_variable, state->secret}};
  state->events = posix::FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!state->events) return system_error("epoll_create1", errno);
  HVD_RETURN_IF_ERROR(state->watch(state->listening.socket.get(), 0, false, EPOLL_CTL_ADD));
  return std::unique_ptr<LocalStoreServer>(new LocalStoreServer(std::move(state)));
}

const std::vector<std::pair<std::string, std::string>>& LocalStoreServer::variables() const {
  return state_->variables;
}
int LocalStoreServer::descriptor() const {
  return state_->events.get();
}

void LocalStoreServer::serve() {
  state_->handle_events();
}

void LocalStoreServer::rank_ended(Rank rank, std::string_view how) {
  if (!state_->is_rank(rank.value)) return;
  // What it said before it ended still counts. Bounded, for others may be talking all the time.
  for (int round = 0; round < 64 && state_->handle_events() > 0;) ++round;
  state_->lose(rank, how);
}

}  // namespace hvd::bootstrap
