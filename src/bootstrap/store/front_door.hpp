#pragma once
// The door of a server: connections that have come in, but have not proven yet that they belong to the job. There is a
// highest number of them. At that number nobody else is let in, and the kernel queues newcomers (net.core.somaxconn of
// them), until one has proven itself, has ended or has had its time. Nobody is put out to make room: most likely all
// are ranks of the job, which come many at once.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "native/posix/file_descriptor.hpp"
#include "native/posix/watch_list.hpp"

namespace hvd::bootstrap {

// Used by one thread.
class FrontDoor {
 public:
  // The number of an event of the door; connections have larger numbers, which rise.
  static constexpr std::uint64_t of_listeners = 0, of_clock = 1;
  static constexpr std::size_t spare_places = 128;  // for connections that are not ranks

  // The listeners belong to the owner, and stay open as long as the door.
  Status open(posix::WatchList& events, std::vector<int> listeners, std::size_t most,
              std::chrono::milliseconds patience);

  // Whether another connection may be accepted; asked before each.
  bool is_open() const { return is_open_; }
  void let_in(std::uint64_t number);
  bool has(std::uint64_t number) const { return strangers_.contains(number); }
  // The connection has proven itself, or has ended.
  void let_go(std::uint64_t number);
  // No descriptor was left: looking again makes sense a little later.
  void rest();
  // For an event of the clock: the connections whose time is over. What they said meanwhile must be read before they
  // are put out.
  std::vector<std::uint64_t> look_at_clock();

 private:
  void set_open(bool open);
  void set_clock();

  posix::WatchList* events_ = nullptr;
  std::vector<int> listeners_;
  std::size_t most_ = 0;
  std::chrono::milliseconds patience_{};
  posix::FileDescriptor clock_;
  std::map<std::uint64_t, Clock::time_point> strangers_;  // when their time is over; oldest first
  bool is_open_ = true;
  bool is_resting_ = false;
};

// Raises the limit of open files of this process (ulimit -n) by so many, as far as it may. The error says what needs
// them.
Status make_room_for_descriptors(std::size_t count, const char* what);

}  // namespace hvd::bootstrap
