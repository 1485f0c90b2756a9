#pragma once
// Makes the connections that this rank has to make.
//
//  1. The peer's addresses are tried in turn, the nearest first. The next is begun when one has failed, or has said
//     nothing for a moment; so a dead address costs little, and a slow one is still waited for.
//  2. Every connection that comes about begins a handshake; only one at a time introduces itself, so the peer never
//     sees two of one name.
//  3. When all addresses have failed they are tried again after a pause: a host may be short of something. After three
//     rounds of clear refusals, or when the peer's time is over, the dial has failed and tells what every address said.
#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/world.hpp"
#include "connections/tcp/event_queue.hpp"
#include "connections/tcp/talk.hpp"
#include "native/posix/tcp_address.hpp"

namespace hvd::connections::tcp {

// Used by the watcher's thread alone.
class Dialer {
 public:
  struct Settings {
    std::vector<posix::InterfaceAddress> own;   // addresses of this host
    bool is_forced = false;                     // use only those
    std::chrono::milliseconds patience{};       // with a host that gives no sign of life
    std::chrono::milliseconds start_timeout{};  // with a host that answers, but whose rank does not answer yet
  };
  struct Outcome {
    Rank peer;
    Digest name;
    Result<posix::FileDescriptor> connection;
  };
  // All references outlive it.
  Dialer(const World& world, const Credentials& credentials, const EventQueue& queue, Settings settings);

  void dial(Rank peer, const Digest& name);
  // Events of Source::dial.
  void move(std::uint64_t number);
  // Does what is due. Call it also after dial() and move().
  void step(Clock::time_point now);
  // When step() has something to do even if no event came.
  std::optional<Clock::time_point> next_deadline() const;
  std::vector<Outcome> take_outcomes();

 private:
  struct Try {
    std::uint64_t number;
    std::size_t endpoint;
    posix::FileDescriptor connecting;  // until the connection is there
    std::optional<Talk> talk;          // from then on
    Clock::time_point deadline;
  };
  struct Dial {
    Rank peer;
    Digest name;
    std::vector<posix::TcpAddress> endpoints;
    std::vector<std::string> troubles;  // by endpoint
    std::list<Try> tries;
    std::size_t next = 0;  // endpoint to begin with next
    int rounds = 0;
    bool may_recover = false;  // some failure in this round was no clear refusal
    Clock::time_point began, next_begin;
    std::optional<Result<posix::FileDescriptor>> outcome;
  };
  void step(Dial& dial, Clock::time_point now);
  void begin(Dial& dial, Clock::time_point now);
  void move(Dial& dial, std::list<Try>::iterator attempt);
  void let_one_introduce_itself(Dial& dial);
  void fail(Dial& dial, std::list<Try>::iterator attempt, const std::string& why, bool may_recover);
  void end_round(Dial& dial, Clock::time_point now);
  void succeed(Dial& dial, Try& attempt);
  void forget(Try& attempt);
  Error unreachable(const Dial& dial) const;
  std::optional<posix::TcpAddress> own_address_for(const posix::TcpAddress& there) const;

  const World& world_;
  const Credentials& credentials_;
  const EventQueue& queue_;
  const Settings settings_;
  std::list<Dial> dials_;
  std::uint64_t next_number_ = 0;
};

}  // namespace hvd::connections::tcp
