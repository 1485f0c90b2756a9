#pragma once
// Incoming connections that have not yet proved that they belong to this job. Their bytes are read into a buffer of
// fixed size, and the first wrong message ends the connection. A connection that sends nothing is dropped after a
// while. If an address opens very many connections, it only displaces its own.
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/world.hpp"
#include "connections/tcp/event_queue.hpp"
#include "connections/tcp/talk.hpp"

namespace hvd::connections::tcp {

// Only the watcher's thread uses it.
class Strangers {
 public:
  struct Proven {
    Rank rank;
    Digest name;
    posix::FileDescriptor socket;
  };
  // All references must outlive it. A connection that has not proved itself after `patience` is dropped.
  Strangers(const World& world, const Credentials& credentials, const EventQueue& queue,
            std::chrono::milliseconds patience);

  // Accepts some of the waiting connections. Call it as long as the socket can be read. Returns false if the process
  // has no free descriptor; call it again later then.
  bool accept_from(int listener);
  // Handles an event of Source::stranger.
  void move(std::uint64_t number);
  void drop_late(Clock::time_point now);
  // Returns when drop_late() has something to do.
  std::optional<Clock::time_point> next_deadline() const;
  std::vector<Proven> take_proven() { return std::exchange(proven_, {}); }

 private:
  struct Stranger {
    Talk talk;
    std::string host;
    Clock::time_point deadline;
  };
  using Iterator = std::map<std::uint64_t, Stranger>::iterator;
  void make_room();
  void drop(Iterator stranger, const std::string& why);
  void name_in_log(const Stranger& stranger, const std::string& why);
  bool is_host_of_a_member(const std::string& host) const;

  static constexpr int most_per_turn = 64;  // a flood of connections must not occupy the watcher
  static constexpr std::size_t most_named = 1000;

  const World& world_;
  const Credentials& credentials_;
  const EventQueue& queue_;
  const std::chrono::milliseconds patience_;
  const std::size_t most_at_once_;  // greater than the number of ranks, which may all connect at the same time
  std::uint64_t next_number_ = 0;
  std::map<std::uint64_t, Stranger> strangers_;  // strangers by number, so the oldest is first
  std::map<std::string, std::size_t> per_host_;
  std::vector<Proven> proven_;
  std::set<std::string> named_;  // addresses that the log has already named
};

}  // namespace hvd::connections::tcp
