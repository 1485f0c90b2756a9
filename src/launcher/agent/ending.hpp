#pragma once
// Ends all processes below this one: first it asks them to end, later it kills them. The agent uses it. horovodrun uses
// it, too, if its agent was killed.
//
//  1. Every rank's process group and every descendant outside of these groups gets the first signal, and SIGCONT, which
//     wakes stopped processes.
//     SIGTERM first goes only to the processes that save when they get it (audience.hpp), and to the others once these
//     have ended. Otherwise a worker's end would make its rank fail before it has saved.
//  2. If the first signal was not SIGTERM, all get SIGTERM after half of the grace (background jobs of a shell ignore
//     SIGINT).
//  3. After the grace every descendant gets SIGKILL, again and again until none is left, so that a process cannot
//     escape by forking.
#include <sys/types.h>

#include <chrono>
#include <vector>

#include "base/deadline.hpp"
#include "native/posix/processes/process.hpp"

namespace hvd::launcher {

class Ending {
 public:
  // Does not end this child, nor any process below it.
  void spare(pid_t child) { spared_.push_back(child); }
  bool begun() const noexcept { return begun_; }
  // A second call can only shorten the grace. With `is_sent` the first signal is not sent, because all processes have
  // had it.
  void begin(int first_signal, std::chrono::milliseconds grace, bool is_sent = false);
  // Sends the signals that are due. Call it when left() has passed. The caller reaps the children, and so notices that
  // no child is left.
  void step();
  std::chrono::milliseconds left() const;  // time until the next step
  // False once no process is left that has to be ended.
  bool has_somebody() const;

 private:
  std::vector<posix::Descendant> condemned() const;
  void ask(int signal);
  void signal_all(int signal) const;
  std::vector<pid_t> spared_;
  std::vector<posix::Descendant> savers_;  // they got SIGTERM before the others
  bool begun_ = false;
  int next_signal_ = 0;
  Clock::time_point next_at_{}, kill_at_{};
};

}  // namespace hvd::launcher
