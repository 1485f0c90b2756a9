#include "connections/tcp/strangers.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "native/posix/sockets/endpoints.hpp"
#include "native/posix/sockets/tcp_socket.hpp"

namespace hvd::connections::tcp {

Strangers::Strangers(const World& world, const Credentials& credentials, const EventQueue& queue,
                     std::chrono::milliseconds patience)
    : world_(world),
      credentials_(credentials),
      queue_(queue),
      patience_(patience),
      most_at_once_(256 + 2 * static_cast<std::size_t>(world.size())) {}

bool Strangers::accept_from(int listener) {
  for (int turn = 0; turn < most_per_turn; ++turn) {
    auto accepted = posix::accept_from_tcp(listener);
    if (!accepted) {
      if (named_.insert("").second) log::warning(accepted.error().message + "; see `ulimit -n`");
      if (strangers_.empty()) return false;
      make_room();
      continue;
    }
    if (!accepted->socket) return true;
    if (strangers_.size() >= most_at_once_) make_room();
    std::uint64_t number = next_number_++;
    std::string host = accepted->from ? accepted->from->host() : "an unknown address";
    int descriptor = accepted->socket.get();
    ++per_host_[host];
    strangers_.emplace(number, Stranger{Talk(std::move(accepted->socket), Handshake::accept(credentials_)),
                                        std::move(host), Clock::now() + patience_});
    if (!queue_.add(descriptor, EPOLLIN, Source::stranger, number))
      drop(strangers_.find(number), "the kernel does not watch it");
  }
  return true;
}

void Strangers::move(std::uint64_t number) {
  auto found = strangers_.find(number);
  if (found == strangers_.end()) return;
  Talk& talk = found->second.talk;
  if (!talk.move()) return drop(found, talk.why());
  if (talk.handshake().state() != Handshake::State::done) return;
  queue_.remove(talk.descriptor());
  Rank rank = talk.handshake().peer();
  Digest name = talk.handshake().name();
  proven_.push_back({rank, name, talk.take_socket()});
  if (--per_host_[found->second.host] == 0) per_host_.erase(found->second.host);
  strangers_.erase(found);
}

void Strangers::drop_late(Clock::time_point now) {
  while (!strangers_.empty() && strangers_.begin()->second.deadline <= now) {
    drop(strangers_.begin(),
         "it did not prove within " + std::to_string(patience_.count() / 1000) + " s that it belongs to this job");
  }
}

std::optional<Clock::time_point> Strangers::next_deadline() const {
  if (strangers_.empty()) return std::nullopt;
  return strangers_.begin()->second.deadline;
}

// Drops the oldest connection of the address that has the most connections.
void Strangers::make_room() {
  auto most = std::max_element(per_host_.begin(), per_host_.end(),
                               [](const auto& left, const auto& right) { return left.second < right.second; });
  auto oldest = std::find_if(strangers_.begin(), strangers_.end(),
                             [&](const auto& each) { return each.second.host == most->first; });
  drop(oldest, "it has " + std::to_string(most->second) + " connections open that prove nothing");
}

void Strangers::drop(Iterator stranger, const std::string& why) {
  name_in_log(stranger->second, why);
  const std::string host = std::move(stranger->second.host);
  queue_.remove(stranger->second.talk.descriptor());
  strangers_.erase(stranger);
  if (--per_host_[host] == 0) per_host_.erase(host);
}

void Strangers::name_in_log(const Stranger& stranger, const std::string& why) {
  if (named_.size() >= most_named || named_.contains(stranger.host)) return;
  std::string text = "dropped a TCP connection from " + stranger.host + ": " + why +
                     "; further ones from there will not be reported. Training is not affected";
  // A peer may try several ways to this rank, and it drops all of these connections except one.
  if (stranger.talk.was_left()) {
    if (!named_.insert(stranger.host + " left").second) return;
    if (is_host_of_a_member(stranger.host)) return log::debug(text);
  }
  named_.insert(stranger.host);
  log::warning(text);
}

bool Strangers::is_host_of_a_member(const std::string& host) const {
  for (const Member& member : world_.members)
    for (const posix::TcpAddress& endpoint : posix::parse_endpoints(member.endpoints))
      if (endpoint.host() == host) return true;
  return false;
}

}  // namespace hvd::connections::tcp
