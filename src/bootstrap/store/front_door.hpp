#pragma once
// The door of a server: who has come in, but has not proven yet that it belongs to the job. When as many of them are
// in as may be, nobody else is let in (the kernel keeps who waits, net.core.somaxconn of them), until one has proven
// itself, is gone or has had its time. Nobody is put out to make room: most likely all are ranks of the job, of which
// many come at once.
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
  // What comes up in the list of events; connections have larger numbers, which rise.
  static constexpr std::uint64_t of_listeners = 0, of_clock = 1;
  static constexpr std::size_t spare_places = 128;  // for others than the ranks

  // The listeners are their owner's, and stay open as long as the door.
  Status open(posix::WatchList& events, std::vector<int> listeners, std::size_t most,
              std::chrono::milliseconds patience);

  // Whether another one may be accepted. Asked before each.
  bool is_open() const { return is_open_; }
  void let_in(std::uint64_t number);
  bool has(std::uint64_t number) const { return strangers_.contains(number); }
  // It has proven itself, or is gone.
  void let_go(std::uint64_t number);
  // No descriptor is left: the next look is worth while a little later.
  void rest();
  // On an event of the clock: who has had its time. What it said meanwhile is to be read before it is put out.
  std::vector<std::uint64_t> look_at_clock();

 private:
  void set_open(bool open);
  void set_clock();

  posix::WatchList* events_ = nullptr;
  std::vector<int> listeners_;
  std::size_t most_ = 0;
  std::chrono::milliseconds patience_{};
  posix::FileDescriptor clock_;
  std::map<std::uint64_t, Clock::time_point> strangers_;  // until when; oldest first
  bool is_open_ = true;
  bool is_resting_ = false;
};

// Lets this process open so many files more than it has (ulimit -n), as far as it may. An error says what needs them.
Status make_room_for_descriptors(std::size_t count, const char* what);

}  // namespace hvd::bootstrap
