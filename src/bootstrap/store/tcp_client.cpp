#include "bootstrap/store/tcp_client.hpp"

#include <netdb.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <vector>

#include "base/text/comma_list.hpp"
#include "bootstrap/store/sealed_stream.hpp"
#include "bootstrap/store/verbs.hpp"
#include "native/posix/sockets/tcp_socket.hpp"

namespace hvd::bootstrap {
namespace {

constexpr std::chrono::milliseconds head_start(250);  // the time after which the next address is tried, too
constexpr std::chrono::milliseconds no_time(0);
// A store that may come later can get another address before it answers, as a pod that is made anew. The names are
// looked up again after this time.
constexpr std::chrono::seconds longest_round(5);

struct Attempt {
  posix::TcpAddress address;
  posix::FileDescriptor socket;
  std::unique_ptr<SealedStream> stream;  // null until the connection is made
};

void resolve(const std::string& host, const std::string& port, std::vector<posix::TcpAddress>& addresses,
             std::string& faults) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (int failure = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found)) {
    faults += (faults.empty() ? "" : "; ") + host + ": " + ::gai_strerror(failure);
    return;
  }
  for (addrinfo* each = found; each != nullptr; each = each->ai_next)
    if (auto address = posix::TcpAddress::of(each->ai_addr)) addresses.push_back(*address);
  ::freeaddrinfo(found);
}

std::vector<posix::TcpAddress> resolve_all(std::string_view list, const std::string& port, std::string& faults) {
  std::vector<posix::TcpAddress> addresses;
  for (const std::string& item : items_of(list)) {
    std::string_view host = item;
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    if (!host.empty()) resolve(std::string(host), port, addresses, faults);
  }
  return addresses;
}

// Closes the socket of an attempt that has failed, and remembers the reason.
void give_up(Attempt& attempt, const std::string& why, std::string& faults) {
  faults += (faults.empty() ? "" : "; ") + attempt.address.text() + ": " + why;
  attempt.stream.reset();
  attempt.socket.reset();
}

// True once the store's greeting has come. The greeting proves nothing yet.
bool advance(Attempt& attempt, std::string_view secret, std::string& faults, bool& was_closed) {
  if (attempt.stream == nullptr) {
    if (int reason = posix::outcome_of_connecting(attempt.socket.get())) {
      give_up(attempt, errno_text(reason), faults);
      return false;
    }
    if (auto prepared = posix::prepare_connection(attempt.socket.get(), store::lost_host_time); !prepared) {
      give_up(attempt, prepared.error().message, faults);
      return false;
    }
    attempt.stream = std::make_unique<SealedStream>(std::move(attempt.socket), SealedStream::Side::dialled, secret,
                                                    store::largest_message);
  }
  char first[SealedStream::mark.size()];
  ssize_t seen = ::recv(attempt.stream->descriptor(), first, sizeof first, MSG_PEEK | MSG_DONTWAIT);
  if (seen > 0 && SealedStream::mark.starts_with({first, static_cast<std::size_t>(seen)})) return true;
  if (seen > 0) give_up(attempt, "something else than Horovod's store answers there", faults);
  else if (seen == 0 || (errno != EAGAIN && errno != EINTR)) {
    give_up(attempt, "closed the connection", faults);
    was_closed = true;
  }
  return false;
}

// Closes the attempts whose connection was not made.
void give_up_unanswered(std::vector<Attempt>& attempts, std::string& faults) {
  for (Attempt& attempt : attempts)
    if (attempt.socket) give_up(attempt, "no answer", faults);
}

// Returns null if a store is there but closed the connection at once: it may have no room now. Also if the store may
// come later and nothing has answered yet. `faults` receives why addresses do not answer.
Result<std::unique_ptr<SealedStream>> dial(std::string_view list, std::string_view port, std::string_view secret,
                                           Deadline deadline, Store store, std::string& faults) {
  faults.clear();
  bool was_closed = false;
  std::vector<posix::TcpAddress> addresses = resolve_all(list, std::string(port), faults);
  std::vector<Attempt> attempts;
  attempts.reserve(addresses.size());
  Deadline round = Deadline::never();
  for (;;) {
    std::vector<pollfd> entries;
    std::vector<Attempt*> open;
    bool is_any_connected = false;
    for (Attempt& attempt : attempts) {
      if (!attempt.socket && attempt.stream == nullptr) continue;
      bool connected = attempt.stream != nullptr;
      int descriptor = connected ? attempt.stream->descriptor() : attempt.socket.get();
      entries.push_back({descriptor, static_cast<short>(connected ? POLLIN : POLLOUT), 0});
      open.push_back(&attempt);
      is_any_connected = is_any_connected || connected;
    }
    bool more = attempts.size() < addresses.size();
    std::string what = "cannot reach the store of the job at " + std::string(list) + ", port " + std::string(port);
    if (open.empty() && !more && (was_closed || store == Store::may_come_later)) return std::unique_ptr<SealedStream>();
    if (open.empty() && !more)
      return Error(ErrorCode::peer_lost, what + ": " + (faults.empty() ? "no address" : faults));
    const bool ends_round = store == Store::may_come_later && !more && !is_any_connected;
    auto left = std::min({deadline.left(), ends_round ? round.left() : std::chrono::milliseconds(INT_MAX - 1),
                          more ? (open.empty() ? no_time : head_start) : std::chrono::milliseconds(INT_MAX - 1)});
    int ready = ::poll(entries.data(), entries.size(), static_cast<int>(left.count() + (more ? 0 : 1)));
    if (ready <= 0 && deadline.passed())
      return Error(ErrorCode::timeout, what + " in time" + (faults.empty() ? "" : ": " + faults) +
                                           " (a firewall? HOROVOD_PORT_RANGE says which ports may be used)");
    for (std::size_t i = 0; i < open.size(); ++i)
      if (entries[i].revents != 0 && advance(*open[i], secret, faults, was_closed)) return std::move(open[i]->stream);
    if (ready <= 0 && ends_round && round.passed()) give_up_unanswered(attempts, faults);
    if (ready > 0 || !more) continue;
    const posix::TcpAddress& next = addresses[attempts.size()];
    auto begun = posix::begin_connecting(next, std::nullopt);
    attempts.push_back({next, std::move(begun.socket), nullptr});
    round = Deadline::after(longest_round);
    if (!attempts.back().socket) give_up(attempts.back(), errno_text(begun.error), faults);
  }
}

Result<std::optional<StoreChannel>> connect_to(std::string_view addresses, std::string_view port,
                                               std::string_view secret, Deadline deadline, Store store,
                                               std::string& faults) {
  auto dialled = dial(addresses, port, secret, deadline, store, faults);
  if (!dialled) return std::move(dialled.error());
  if (*dialled == nullptr) return std::optional<StoreChannel>();
  std::shared_ptr<SealedStream> stream = std::move(*dialled);
  StoreChannel channel;
  channel.store = "the job's store at " + std::string(addresses) + ", port " + std::string(port);
  channel.descriptor = stream->descriptor();
  channel.send = [stream](ConstBytes message) { return stream->send(message); };
  channel.receive = [stream, store = channel.store](Buffer& message) -> Result<posix::Delivery> {
    if (stream->flush() == posix::Delivery::closed) return posix::Delivery::closed;
    auto got = stream->receive(message);
    if (!got && stream->was_refused())
      got.error().message =
          store + " does not know the secret of this process: is HOROVOD_SECRET_KEY that of another job?";
    return got;
  };
  channel.has_unsent = [stream] { return stream->has_unsent(); };
  return std::optional(std::move(channel));
}

}  // namespace

Result<std::unique_ptr<StoreClient>> enter_tcp_store(std::string_view addresses, std::string_view port,
                                                     std::string_view secret, Rank rank, int size, Deadline deadline,
                                                     Store store) {
  Buffer greeting;
  ByteWriter out(greeting);
  out.put(store::wire_version);
  out.put(rank.value);
  out.put(static_cast<std::int32_t>(size));
  out.put(static_cast<std::int32_t>(::getpid()));
  std::string faults;
  auto client = StoreClient::enter([&] { return connect_to(addresses, port, secret, deadline, store, faults); },
                                   greeting, "HOROVOD_SECRET_KEY", rank, size, deadline);
  if (!client && client.error().code == ErrorCode::timeout && !faults.empty())
    client.error().message = "cannot reach the store of the job at " + std::string(addresses) + ", port " +
                             std::string(port) + " in time: " + faults;
  return client;
}

}  // namespace hvd::bootstrap
