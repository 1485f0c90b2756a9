#pragma once
// Watches connections on which a send has waited for a long time. The kernel's timer for unanswered data
// (TCP_USER_TIMEOUT) would also end a connection whose peer answers but does not read for that time, and a rank may be
// busy for longer. So the timer is switched off for these connections, and this class checks from time to time that the
// peer still answers.
#include <chrono>
#include <map>
#include <optional>

#include "base/deadline.hpp"

namespace hvd::connections::tcp {

// Not thread-safe. The descriptors must stay open until remove().
class Stalls {
 public:
  explicit Stalls(std::chrono::milliseconds patience) : patience_(patience) {}

  // Adds a connection. Returns true if step() is now due earlier than before.
  bool add(int socket);
  void remove(int socket) { stalled_.erase(socket); }
  // True if step() has ended the connection.
  bool has_ended(int socket) const {
    auto found = stalled_.find(socket);
    return found != stalled_.end() && found->second.is_over;
  }
  // Ends connections whose peer has answered nothing for too long. Forgets connections that move again.
  void step(Clock::time_point now);
  std::optional<Clock::time_point> next_deadline() const;

 private:
  struct Stall {
    bool is_lifted = false;  // the kernel's timer is switched off
    int unanswered_looks = 0;
    bool is_over = false;
  };
  std::chrono::milliseconds period() const { return patience_ / 8; }

  const std::chrono::milliseconds patience_;
  std::map<int, Stall> stalled_;
  Clock::time_point next_step_;
};

}  // namespace hvd::connections::tcp
