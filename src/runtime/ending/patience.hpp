#pragma once
// How an engine waits: it first looks again at once, while that costs others little; then it lets other threads run
// between looks; then it sleeps.
#include <sched.h>

#include <chrono>

#include "base/deadline.hpp"

namespace hvd::runtime {

class Patience {
 public:
  // `spin` is true if every thread of Horovod on this node can have its own core. On a shared core spinning would cost
  // other threads whole scheduler ticks.
  explicit Patience(bool spin) : spin_(spin) {}

  void found_work() { looks_ = 0; }
  // Returns false when it is time to sleep.
  bool look_again() {
    if (looks_++ == 0) began_ = Clock::now();
    if (!spin_) ::sched_yield();
    else pause();
    if ((looks_ & (spin_ ? 63 : 7)) != 0) return true;
    return Clock::now() - began_ < limit;
  }

 private:
  static constexpr auto limit = std::chrono::microseconds(50);
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  bool spin_;
  unsigned looks_ = 0;
  Clock::time_point began_;
};

}  // namespace hvd::runtime
