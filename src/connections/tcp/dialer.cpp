#include "connections/tcp/dialer.hpp"

#include <algorithm>
#include <cerrno>

#include "native/posix/sockets/endpoints.hpp"
#include "native/posix/sockets/tcp_socket.hpp"

namespace hvd::connections::tcp {
namespace {

using std::chrono::milliseconds;

// If an address does not answer for this time, the next address is tried at the same time (RFC 8305).
constexpr milliseconds head_start{250};
constexpr milliseconds first_pause{50}, longest_pause{1000};
constexpr int most_refusals = 3;

// True if another try can help.
bool may_recover(int error) {
  return error != ECONNREFUSED && error != EAFNOSUPPORT && error != EACCES && error != EPERM;
}

}  // namespace

Dialer::Dialer(const World& world, const Credentials& credentials, const EventQueue& queue, Settings settings)
    : world_(world), credentials_(credentials), queue_(queue), settings_(std::move(settings)) {}

void Dialer::dial(Rank peer, const Digest& name) {
  add(peer, name);
}

void Dialer::look_for(Rank peer) {
  add(peer, {}).is_look = true;
}

Dialer::Dial& Dialer::add(Rank peer, const Digest& name) {
  Dial& dial = dials_.emplace_back();
  dial.peer = peer;
  dial.name = name;
  dial.endpoints = posix::by_nearness(posix::parse_endpoints(world_.member(peer).endpoints), settings_.own);
  dial.troubles.resize(dial.endpoints.size());
  dial.began = dial.next_begin = Clock::now();
  return dial;
}

void Dialer::move(std::uint64_t number) {
  for (Dial& dial : dials_)
    for (auto attempt = dial.tries.begin(); attempt != dial.tries.end(); ++attempt)
      if (attempt->number == number) return move(dial, attempt);
}

void Dialer::step(Clock::time_point now) {
  for (Dial& dial : dials_)
    if (!dial.outcome) step(dial, now);
}

void Dialer::step(Dial& dial, Clock::time_point now) {
  for (auto attempt = dial.tries.begin(); attempt != dial.tries.end();) {
    auto current = attempt++;
    if (current->deadline > now) continue;
    auto waited = std::chrono::duration_cast<std::chrono::seconds>(now - dial.began + milliseconds(500)).count();
    fail(dial, current,
         (current->talk ? "connected, but the rank did not answer within " : "no answer within ") +
             std::to_string(waited) + " s",
         true);
  }
  let_one_introduce_itself(dial);
  while (!dial.outcome && dial.next < dial.endpoints.size() && now >= dial.next_begin) begin(dial, now);
  if (!dial.outcome && dial.tries.empty() && dial.next == dial.endpoints.size()) end_round(dial, now);
}

void Dialer::begin(Dial& dial, Clock::time_point now) {
  std::size_t endpoint = dial.next++;
  const posix::TcpAddress& there = dial.endpoints[endpoint];
  auto begun = posix::begin_connecting(there, own_address_for(there));
  if (!begun.socket) {
    dial.troubles[endpoint] = errno_text(begun.error);
    dial.may_recover |= may_recover(begun.error);
    return;
  }
  std::uint64_t number = next_number_++;
  int descriptor = begun.socket.get();
  auto limit = std::max(dial.began + settings_.patience, now + milliseconds(1000));
  dial.tries.push_back({number, endpoint, std::move(begun.socket), std::nullopt, limit});
  dial.next_begin = now + head_start;
  if (!queue_.add(descriptor, EPOLLOUT, Source::dial, number))
    fail(dial, std::prev(dial.tries.end()), errno_text(errno), true);
}

void Dialer::move(Dial& dial, std::list<Try>::iterator attempt) {
  if (!attempt->talk) {
    int error = posix::outcome_of_connecting(attempt->connecting.get());
    if (error != 0) return fail(dial, attempt, errno_text(error), may_recover(error));
    if (dial.is_look) {
      dial.outcome = posix::FileDescriptor();
      return forget_all(dial);
    }
    auto prepared = posix::prepare_connection(attempt->connecting.get(), settings_.patience);
    if (!prepared) return fail(dial, attempt, prepared.error().message, false);
    queue_.change(attempt->connecting.get(), EPOLLIN, Source::dial, attempt->number);
    attempt->talk.emplace(std::move(attempt->connecting), Handshake::dial(credentials_, dial.peer));
    attempt->deadline = std::max(dial.began + settings_.start_timeout, Clock::now() + milliseconds(1000));
  }
  Talk& talk = *attempt->talk;
  if (!talk.move()) return fail(dial, attempt, talk.why(), talk.was_left());
  if (talk.handshake().state() == Handshake::State::done) succeed(dial, *attempt);
}

void Dialer::let_one_introduce_itself(Dial& dial) {
  auto in_state = [&](Handshake::State state) {
    return std::find_if(dial.tries.begin(), dial.tries.end(),
                        [=](const Try& each) { return each.talk && each.talk->handshake().state() == state; });
  };
  while (!dial.outcome && in_state(Handshake::State::judged) == dial.tries.end()) {
    auto chosen = in_state(Handshake::State::introducing);
    if (chosen == dial.tries.end()) return;
    chosen->talk->introduce(dial.name);
    move(dial, chosen);
  }
}

void Dialer::fail(Dial& dial, std::list<Try>::iterator attempt, const std::string& why, bool can_recover) {
  dial.troubles[attempt->endpoint] = why;
  dial.may_recover |= can_recover;
  forget(*attempt);
  dial.tries.erase(attempt);
  if (dial.next < dial.endpoints.size()) dial.next_begin = Clock::now();
}

void Dialer::end_round(Dial& dial, Clock::time_point now) {
  ++dial.rounds;
  if (dial.is_look && (dial.endpoints.empty() || dial.may_recover)) {
    dial.outcome = posix::FileDescriptor();  // this does not tell that the peer is gone
    return;
  }
  if (dial.endpoints.empty() || now - dial.began >= settings_.patience ||
      (!dial.may_recover && dial.rounds >= most_refusals)) {
    dial.outcome = dial.is_look ? gone(dial) : unreachable(dial);
    return;
  }
  dial.next = 0;
  dial.may_recover = false;
  dial.next_begin = now + std::min(first_pause * (1 << std::min(dial.rounds, 10)), longest_pause);
}

void Dialer::succeed(Dial& dial, Try& attempt) {
  queue_.remove(attempt.talk->descriptor());
  dial.outcome = attempt.talk->take_socket();
  forget_all(dial);
}

void Dialer::forget_all(Dial& dial) {
  for (Try& attempt : dial.tries) forget(attempt);
  dial.tries.clear();
}

void Dialer::forget(Try& attempt) {
  int descriptor = attempt.talk ? attempt.talk->descriptor() : attempt.connecting.get();
  if (descriptor >= 0) queue_.remove(descriptor);
}

std::optional<Clock::time_point> Dialer::next_deadline() const {
  std::optional<Clock::time_point> next;
  auto consider = [&](Clock::time_point at) { next = next ? std::min(*next, at) : at; };
  for (const Dial& dial : dials_) {
    if (dial.next < dial.endpoints.size()) consider(dial.next_begin);
    for (const Try& attempt : dial.tries) consider(attempt.deadline);
  }
  return next;
}

std::vector<Dialer::Outcome> Dialer::take_outcomes() {
  std::vector<Outcome> outcomes;
  for (auto dial = dials_.begin(); dial != dials_.end();) {
    auto current = dial++;
    if (!current->outcome) continue;
    outcomes.push_back({current->peer, current->name, std::move(*current->outcome), current->is_look});
    dials_.erase(current);
  }
  return outcomes;
}

Error Dialer::unreachable(const Dial& dial) const {
  std::string message = describe(world_, dial.peer) + " cannot be reached over TCP";
  if (dial.endpoints.empty()) {
    message += ": it has told no address (\"" + world_.member(dial.peer).endpoints + "\")";
    return {ErrorCode::peer_lost, message};
  }
  for (std::size_t i = 0; i < dial.endpoints.size(); ++i)
    message += (i == 0 ? ": " : "; ") + dial.endpoints[i].text() + ": " + dial.troubles[i];
  message +=
      ". Is the host up, does the rank still run (see its own output), does a firewall let the port through "
      "(HOROVOD_PORT_RANGE), is it the right network (HOROVOD_GLOO_IFACE)?";
  return {ErrorCode::peer_lost, message};
}

Error Dialer::gone(const Dial& dial) const {
  std::string message = describe(world_, dial.peer) + " does not listen any more";
  for (std::size_t i = 0; i < dial.endpoints.size(); ++i)
    message += (i == 0 ? ": " : "; ") + dial.endpoints[i].text() + ": " + dial.troubles[i];
  message +=
      ". It ended, or gave up its start, before it had connected to this rank. Look at that rank's own output for the "
      "cause";
  return {ErrorCode::peer_lost, message};
}

std::optional<posix::TcpAddress> Dialer::own_address_for(const posix::TcpAddress& there) const {
  if (!settings_.is_forced) return std::nullopt;
  std::optional<posix::TcpAddress> chosen;
  for (const posix::InterfaceAddress& own : settings_.own) {
    if (own.address.family() != there.family()) continue;
    if (own.address.shares_prefix(there, own.prefix_bits)) return own.address;
    if (!chosen) chosen = own.address;
  }
  return chosen;
}

}  // namespace hvd::connections::tcp
