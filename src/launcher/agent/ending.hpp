#pragma once
// Ends all processes below this one: asks first, then forces. Used by the agent, and by horovodrun when its agent was
// killed.
//
//  1. Every rank's process group and every descendant outside of these gets the first signal, and SIGCONT for the
//     stopped.
//  2. If that was not SIGTERM: SIGTERM after half of the grace (background jobs of a shell ignore SIGINT).
//  3. After the grace: SIGKILL to every descendant, again and again until none is left, so that forking does not help.
#include <sys/types.h>

#include <chrono>
#include <vector>

#include "base/deadline.hpp"
#include "native/posix/process.hpp"

namespace hvd::launcher {

class Ending {
 public:
  // Leaves out this child and all that is below it.
  void spare(pid_t child) { spared_.push_back(child); }
  bool begun() const noexcept { return begun_; }
  // A second call can only shorten the grace. `is_sent`: all have had the first signal already.
  void begin(int first_signal, std::chrono::milliseconds grace, bool is_sent = false);
  // Sends what is due by now. Call it when left() has passed; the caller reaps and finds out that no child is left.
  void step();
  std::chrono::milliseconds left() const;  // until the next step
  // False once there is nothing left to end.
  bool has_somebody() const;

 private:
  std::vector<posix::Descendant> condemned() const;
  void signal_all(int signal) const;
  std::vector<pid_t> spared_;
  bool begun_ = false;
  int next_signal_ = 0;
  Clock::time_point next_at_{}, kill_at_{};
};

}  // namespace hvd::launcher
