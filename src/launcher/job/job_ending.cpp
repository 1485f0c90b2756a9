#include "launcher/job/job_ending.hpp"

#include <signal.h>
#include <sys/wait.h>

namespace hvd::launcher {

void JobEnding::begin(int signal) {
  if (begun_) return;
  begun_ = true;
  gives_up_at_.set(grace_ + patience);
  hosts_.order_end(signal, grace_);
}

void JobEnding::hurry() {
  if (own_children_.begun()) own_children_.begin(SIGKILL, std::chrono::milliseconds(0));
  hosts_.order_end(SIGKILL, std::chrono::milliseconds(0));
  gives_up_at_.set(patience);
}

void JobEnding::take_over(HostLink& here) {
  here.is_taken_over = true;
  begin(SIGTERM);
  // The commands that lead to other hosts end by themselves.
  for (HostLink& host : hosts_)
    if (!host.is_here && host.process > 0) own_children_.spare(host.process);
  own_children_.begin(SIGTERM, grace_);
}

void JobEnding::step() {
  if (!own_children_.begun()) return;
  own_children_.step();
  reap();
  if (own_children_.has_somebody()) return;
  for (HostLink& host : hosts_)
    if (host.is_here) host.be_gone();
}

void JobEnding::reap() {
  for (int status = 0; pid_t child = ::waitpid(-1, &status, WNOHANG);) {
    if (child < 0) return;
    for (HostLink& host : hosts_)
      if (host.process == child && !host.is_here) {
        host.process = 0;
        host.wait_status = status;
      }
  }
}

}  // namespace hvd::launcher
