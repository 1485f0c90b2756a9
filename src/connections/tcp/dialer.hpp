#pragma once
// Makes the connections that this rank has to dial.
//
//  1. The peer's addresses are tried in turn, the nearest first. The next address is begun when one has failed, or has
//     not answered for a moment. So a dead address costs little, and a slow one still has its chance.
//  2. Every connection that is made begins a handshake. Only one connection at a time introduces itself, so the peer
//     never sees two of one name.
//  3. When all addresses have failed, they are tried again after a pause, because a host may lack some resource for a
//     moment. The dial has failed after three rounds of clear refusals, or when the peer's time is over. The error
//     tells the answer of every address.
//  4. A peer from which this rank waits for a connection can be looked for: it is there if one of its addresses takes a
//     connection, and gone after three rounds of clear refusals.
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
#include "native/posix/sockets/tcp_address.hpp"

namespace hvd::connections::tcp {

// Only the watcher's thread uses it.
class Dialer {
 public:
  struct Settings {
    std::vector<posix::InterfaceAddress> own;   // the addresses of this host
    bool is_forced = false;                     // true if connections must use these addresses
    std::chrono::milliseconds patience{};       // limit for a host that gives no sign of life
    std::chrono::milliseconds start_timeout{};  // limit for a host that answers, but whose rank does not answer yet
  };
  struct Outcome {
    Rank peer;
    Digest name;
    Result<posix::FileDescriptor> connection;
    bool is_look = false;  // of look_for(): `connection` is empty, or the error of a peer that is gone
  };
  // All references must outlive it.
  Dialer(const World& world, const Credentials& credentials, const EventQueue& queue, Settings settings);

  void dial(Rank peer, const Digest& name);
  void look_for(Rank peer);
  // Handles an event of Source::dial.
  void move(std::uint64_t number);
  // Does everything that is due. Call it also after dial() and move().
  void step(Clock::time_point now);
  // Returns when step() has something to do even without an event.
  std::optional<Clock::time_point> next_deadline() const;
  std::vector<Outcome> take_outcomes();

 private:
  struct Try {
    std::uint64_t number;
    std::size_t endpoint;
    posix::FileDescriptor connecting;  // used until the connection is made
    std::optional<Talk> talk;          // used after the connection was made
    Clock::time_point deadline;
  };
  struct Dial {
    Rank peer;
    Digest name;
    bool is_look = false;
    std::vector<posix::TcpAddress> endpoints;
    std::vector<std::string> troubles;  // what went wrong with each endpoint
    std::list<Try> tries;
    std::size_t next = 0;  // the endpoint with which the next round begins
    int rounds = 0;
    bool may_recover = false;  // some failure in this round was not a clear refusal
    Clock::time_point began, next_begin;
    std::optional<Result<posix::FileDescriptor>> outcome;
  };
  Dial& add(Rank peer, const Digest& name);
  void step(Dial& dial, Clock::time_point now);
  void begin(Dial& dial, Clock::time_point now);
  void move(Dial& dial, std::list<Try>::iterator attempt);
  void let_one_introduce_itself(Dial& dial);
  void fail(Dial& dial, std::list<Try>::iterator attempt, const std::string& why, bool may_recover);
  void end_round(Dial& dial, Clock::time_point now);
  void succeed(Dial& dial, Try& attempt);
  void forget(Try& attempt);
  void forget_all(Dial& dial);
  Error unreachable(const Dial& dial) const;
  Error gone(const Dial& dial) const;
  std::optional<posix::TcpAddress> own_address_for(const posix::TcpAddress& there) const;

  const World& world_;
  const Credentials& credentials_;
  const EventQueue& queue_;
  const Settings settings_;
  std::list<Dial> dials_;
  std::uint64_t next_number_ = 0;
};

}  // namespace hvd::connections::tcp
