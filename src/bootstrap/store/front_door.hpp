#pragma once
// Decides when a server accepts connections. It knows the strangers: connections that the server has accepted, but that
// have not proven yet that they belong to the job. Their number is limited. At the limit no other connection is
// accepted, and the kernel queues new ones (net.core.somaxconn of them) until a stranger has proven itself, has ended
// or has used up its time. That time is short while the limit is reached: there is room for all ranks and more, so
// others hold the places, and a rank needs only milliseconds.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/sockets/watch_list.hpp"

namespace hvd::bootstrap {

// Used by one thread.
class FrontDoor {
 public:
  // The numbers of this object's own events. Connections have larger numbers, and each new one has a higher number.
  static constexpr std::uint64_t of_listeners = 0, of_clock = 1;
  static constexpr std::size_t spare_places = 128;  // room for connections of processes that are not ranks

  // The listeners belong to the owner and must stay open as long as this object exists.
  Status open(posix::WatchList& events, std::vector<int> listeners, std::size_t most,
              std::chrono::milliseconds patience);

  bool is_crowded() const { return strangers_.size() >= most_; }
  // True if another connection may be accepted. The owner asks before it accepts each one.
  bool is_open() const { return is_open_; }
  void add(std::uint64_t number);  // called when the owner has accepted a connection
  bool has(std::uint64_t number) const { return strangers_.contains(number); }
  // Called when the connection has proven itself, or has ended.
  void remove(std::uint64_t number);
  // Called when no descriptor was left. For a moment no connection is accepted, and then the owner may try again.
  void pause();
  // For an event of the clock: returns the connections whose time is over. The owner must read what they have sent
  // meanwhile before it closes them.
  std::vector<std::uint64_t> take_overdue();

 private:
  void set_open(bool open);
  void set_clock();

  posix::WatchList* events_ = nullptr;
  std::vector<int> listeners_;
  std::size_t most_ = 0;
  std::chrono::milliseconds patience_{};
  posix::FileDescriptor clock_;
  std::chrono::milliseconds time_of_strangers() const;

  std::map<std::uint64_t, Clock::time_point> strangers_;  // when each stranger has come, oldest first
  bool is_open_ = true;
  bool is_paused_ = false;
};

// Raises this process's limit of open files (ulimit -n) so that `count` connections have room, as far as the system
// allows. With fewer descriptors connections wait outside.
void make_room_for_descriptors(std::size_t count);

}  // namespace hvd::bootstrap
