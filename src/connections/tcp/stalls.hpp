#pragma once
// Connections on which a send has waited for long. The kernel's timer for unanswered data (TCP_USER_TIMEOUT) would also
// end a connection whose other end answers but does not read for that time, and a rank may be busy for longer. So the
// timer is off for these connections, and from time to time we look up whether the other end still answers.
#include <chrono>
#include <map>
#include <optional>

#include "base/deadline.hpp"

namespace hvd::connections::tcp {

// Not thread-safe. The descriptors are open as long as they are in here.
class Stalls {
 public:
  explicit Stalls(std::chrono::milliseconds patience) : patience_(patience) {}

  // True if step() is due earlier than it was before.
  bool add(int socket);
  void remove(int socket) { stalled_.erase(socket); }
  // Whether step() has ended it.
  bool has_ended(int socket) const {
    auto found = stalled_.find(socket);
    return found != stalled_.end() && found->second.is_over;
  }
  // Ends connections whose other end has answered nothing for too long, and forgets those that move again.
  void step(Clock::time_point now);
  std::optional<Clock::time_point> next_deadline() const;

 private:
  struct Stall {
    bool is_lifted = false;  // the kernel's timer is off
    int unanswered_looks = 0;
    bool is_over = false;
  };
  std::chrono::milliseconds period() const { return patience_ / 8; }

  const std::chrono::milliseconds patience_;
  std::map<int, Stall> stalled_;
  Clock::time_point next_step_;
};

}  // namespace hvd::connections::tcp
