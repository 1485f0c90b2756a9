#pragma once
// The end of a job, from the wish for it until nothing of the job is left on any host. The agents end what is below
// them; should that of this machine have been killed, its children are ours, and are ended here.
#include <chrono>

#include "launcher/agent/ending.hpp"
#include "launcher/job/alarm.hpp"
#include "launcher/job/host_links.hpp"

namespace hvd::launcher {

class JobEnding {
 public:
  // Beyond the grace: for SIGKILL to take effect, and for a reader of our output that is gone quiet after the end was
  // wanted.
  static constexpr std::chrono::milliseconds patience{3000};

  // Both outlive this.
  JobEnding(HostLinks& hosts, std::chrono::milliseconds grace) : hosts_(hosts), grace_(grace) {}

  void begin(int signal);  // only the first call counts
  void hurry();            // no grace any more
  void take_over(HostLink& here);

  // Somebody was heard of: much output may come on the way to the end, only silence is a reason to give up.
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
