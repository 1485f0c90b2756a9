#pragma once
// The end of a job, from the request for it until nothing of the job is left on any host. The agents end the processes
// below them. If the agent of this machine was killed, horovodrun has adopted the agent's children and ends them here.
#include <chrono>

#include "launcher/agent/ending.hpp"
#include "launcher/job/alarm.hpp"
#include "launcher/job/host_links.hpp"

namespace hvd::launcher {

class JobEnding {
 public:
  // The time after the grace in which SIGKILL takes effect. It is also the time in which a reader of our output that
  // has stopped reading may read again.
  static constexpr std::chrono::milliseconds patience{3000};

  // `hosts` must outlive this object.
  JobEnding(HostLinks& hosts, std::chrono::milliseconds grace) : hosts_(hosts), grace_(grace) {}

  void begin(int signal);  // begins the end of the job; only the first call counts
  void hurry();            // ends the grace now
  void take_over(HostLink& here);

  // Call it when an agent has sent something. Much output may come before the end, so only silence is a reason to give
  // up.
  void note_report() { gives_up_at_.put_off(patience); }
  void step();  // does what is due now
  bool has_given_up() const { return gives_up_at_.has_rung(); }
  std::chrono::milliseconds left() const { return std::min(own_children_.left(), gives_up_at_.left()); }

 private:
  void reap();

  HostLinks& hosts_;
  std::chrono::milliseconds grace_;
  bool begun_ = false;
  Alarm gives_up_at_;
  Ending own_children_;  // begins when this machine's agent was killed
};

}  // namespace hvd::launcher
