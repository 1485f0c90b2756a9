#pragma once
// The connections of a store's server: accepts them as the front door (front_door.hpp) allows, reads their messages,
// sends the answers as far as the other ends read them, and drops those that do not prove in time that they belong to
// the job. The two servers have streams of their own, and read a first message in their own way.
#include <sys/epoll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "bootstrap/store/front_door.hpp"
#include "bootstrap/store/verbs.hpp"
#include "native/posix/processes/fork_guard.hpp"
#include "native/posix/sockets/unix_socket.hpp"
#include "native/posix/sockets/watch_list.hpp"

namespace hvd::bootstrap {

// A Stream has the calls of SealedStream that are used here. A Server has:
//   Result<bool> accept(int listener)               accepts a connection and hands it to admit(), or refuses it. False
//                                                   if none waits; an error if there is no descriptor for it.
//   bool handle(std::uint64_t number, ConstBytes)   False if the message breaks the protocol. The call may end the
//                                                   connection.
//   void left(std::uint64_t number, why)            The connection has ended. `why` completes "rank 3 …".
// Used by one thread.
template <typename Stream, typename Server>
class StoreConnections {
 public:
  struct Options {
    std::string name;  // of the server, for warnings
    int ranks = 0;
    std::chrono::milliseconds strangers_time{};
    std::size_t most_unsent_bytes = 0;  // limit for answers to a client that does not read them
    // So many messages are read for each event of a connection, so that one rank which sends very many does not starve
    // the others. A stream that keeps what it has received must be read to its end, because no event announces that.
    int most_messages = 0;
  };
  StoreConnections(Server& server, Options options) : server_(server), options_(std::move(options)) {}
  ~StoreConnections() {
    for (auto& [number, connection] : connections_) posix::stop_withholding(connection.stream->descriptor());
  }

  Status open(std::vector<int> listeners) {
    auto events = posix::WatchList::open();
    if (!events) return events.error();
    events_ = std::move(*events);
    listeners_ = std::move(listeners);
    incoming_.reserve(store::largest_message);
    auto places = static_cast<std::size_t>(options_.ranks) + FrontDoor::spare_places;
    make_room_for_descriptors(places);
    return door_.open(events_, listeners_, places, options_.strangers_time);
  }
  int descriptor() const { return events_.descriptor(); }

  // Handles what can be handled now. Returns the number of events.
  int serve() {
    epoll_event ready[512];
    int count = ::epoll_wait(events_.descriptor(), ready, 512, 0);
    for (int i = 0; i < count; ++i) {
      std::uint64_t number = ready[i].data.u64;
      if (number == FrontDoor::of_listeners) accept_all();
      if (number == FrontDoor::of_clock) drop_overdue();
      if (number <= FrontDoor::of_clock) continue;
      if ((ready[i].events & EPOLLOUT) != 0) flush(number);
      if ((ready[i].events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) read_from(number);
    }
    return count;
  }
  // Handles what was sent so far. The loop is bounded, because other ranks may send all the time.
  void serve_what_was_sent() {
    for (int round = 0; round < 64 && serve() > 0;) ++round;
  }

  // `from` is the address of the other end. If it is empty, the end of a stranger is not worth a message.
  void admit(std::unique_ptr<Stream> stream, std::string from) {
    std::uint64_t number = ++last_number_;
    if (!events_.add(stream->descriptor(), number)) return;
    posix::withhold_from_children(stream->descriptor());
    connections_[number] = {std::move(stream), std::move(from)};
    door_.add(number);
    flush(number);
  }
  // The connection has proven that it belongs to the job.
  void trust(std::uint64_t number) { door_.remove(number); }

  // The connection may have ended when this call returns.
  void answer(std::uint64_t number, store::SharedMessage message) {
    auto found = connections_.find(number);
    if (found == connections_.end()) return;
    if (found->second.stream->unsent_bytes() > options_.most_unsent_bytes)
      return drop(number, "did not read the answers to its requests");
    (void)found->second.stream->send(std::move(message));  // flush() finds out what is wrong
    flush(number);
  }

 private:
  struct Connection {
    std::unique_ptr<Stream> stream;
    std::string from;
    bool also_writable = false;
  };

  void accept_all() {
    constexpr int most_at_once = 64;  // those that are here have their turn between portions
    for (int listener : listeners_) {
      for (int round = 0; round < most_at_once && door_.is_open(); ++round) {
        auto accepted = server_.accept(listener);
        if (!accepted) {
          if (!std::exchange(lacked_descriptors_, true))
            log::warning(options_.name + ": " + accepted.error().message +
                         ": new connections have to wait (ulimit -n)");
          return door_.pause();
        }
        if (!*accepted) break;
      }
    }
  }

  void drop_overdue() {
    const bool is_crowded = door_.is_crowded();
    const auto overdue = door_.take_overdue();
    const std::string oldest = overdue.empty() ? "" : connections_[overdue.front()].from;
    if (is_crowded && !oldest.empty() && !std::exchange(was_ever_crowded_, true))
      log::warning(options_.name + ": " + std::to_string(overdue.size()) + " connections, the oldest from " + oldest +
                   ", held all places and did not prove that they belong to the job; such ones are dropped early");
    for (std::uint64_t number : overdue) {
      read_from(number);
      if (door_.has(number)) drop(number, "did not prove in time that it belongs to the job");
    }
  }

  // Ends a connection. `why` completes both "rank 3 …" and "a connection from 10.0.0.9:4711 …".
  void drop(std::uint64_t number, const std::string& why) {
    auto gone = connections_.extract(number);
    if (gone.empty()) return;
    const auto& [stream, from, also_writable] = gone.mapped();
    posix::stop_withholding(stream->descriptor());
    if (door_.has(number)) {
      // A connection that said nothing at all may come from a rank that has found a better address of this host.
      bool is_news = !stream->is_untouched() && warnings_left_ > 0;
      auto level = is_news ? log::Level::warning : log::Level::debug;
      if (!from.empty() && log::enabled(level))
        log::write(level, options_.name + ": a connection from " + from + " was dropped: it " + why +
                              (is_news && --warnings_left_ == 0 ? "; further ones will not be reported" : ""));
      door_.remove(number);
    }
    server_.left(number, why);
  }

  void flush(std::uint64_t number) {
    auto found = connections_.find(number);
    if (found == connections_.end()) return;
    auto& [stream, from, also_writable] = found->second;
    posix::Delivery flushed = stream->flush();
    if (flushed == posix::Delivery::closed) return drop(number, "closed its connection");
    bool more = flushed == posix::Delivery::would_block;
    if (more != also_writable) (void)events_.change(stream->descriptor(), number, more);
    also_writable = more;
  }

  void read_from(std::uint64_t number) {
    for (int round = 0; round < options_.most_messages; ++round) {
      auto found = connections_.find(number);
      if (found == connections_.end()) return;
      auto got = found->second.stream->receive(incoming_);
      bool is_stranger = door_.has(number);
      if (!got)
        return drop(number,
                    is_stranger ? "does not know the job's secret" : "sent something that is not of this protocol");
      if (*got == posix::Delivery::would_block) return flush(number);
      if (*got == posix::Delivery::closed)
        return drop(number, is_stranger ? "closed it before it had proven that it belongs to the job"
                                        : "ended or closed its connection");
      if (!server_.handle(number, incoming_)) return drop(number, "sent a message that is not of this protocol");
    }
  }

  Server& server_;
  const Options options_;
  std::vector<int> listeners_;
  posix::WatchList events_;
  FrontDoor door_;
  std::map<std::uint64_t, Connection> connections_;
  std::uint64_t last_number_ = FrontDoor::of_clock;
  bool lacked_descriptors_ = false, was_ever_crowded_ = false;
  int warnings_left_ = 8;  // number of warnings about strangers that may still be written; port scanners come often
  Buffer incoming_;
};

}  // namespace hvd::bootstrap
