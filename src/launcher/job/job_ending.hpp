#pragma once
// The end of a job, from the wish for it until nothing of the job is left on any host. The agents end what is below
// them. If the agent of this machine was killed, horovodrun has adopted its children, and ends them here.
#include <chrono>

#include "launcher/agent/ending.hpp"
#include "launcher/job/alarm.hpp"
#include "launcher/job/host_links.hpp"

namespace hvd::launcher {

class JobEnding {
 public:
  // The time after the grace in which SIGKILL takes effect, and in which a reader of our output that has gone quiet
  // may read again.
  static constexpr std::chrono::milliseconds patience{3000};

  // Both outlive this.
  JobEnding(HostLinks& hosts, std::chrono::milliseconds grace) : hosts_(hosts), grace_(grace) {}

  void begin(int signal);  // only the first call counts
  void hurry();            // ends the grace now
  void take_over(HostLink& here);

  // An agent was heard of. Much output may come before the end, so only silence is a reason to give up.
  void hear() { gives_up_at_.put_off(patience); }
  void step();  // does what is due
  bool has_given_up() const { return gives_up_at_.has_rung(); }
  std::chrono::milliseconds left() const { return std::min(own_children_.left(), gives_up_at_.left()); }

 private:
  void reap();

  HostLinks& hosts_;
  std::chrono::milliseconds grace_;
  bool begun_ = false;
  Alarm gives_up_at_;
  Ending own_children_;  // begun when they were taken over
};

}  // namespace hvd::launcher
