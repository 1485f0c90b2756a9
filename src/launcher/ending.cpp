#include "launcher/ending.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "native/posix/process.hpp"

namespace hvd::launcher {

void Ending::begin(int first_signal, std::chrono::milliseconds grace) {
  Clock::time_point now = Clock::now();
  if (begun_) {
    kill_at_ = std::min(kill_at_, now + grace);
    next_at_ = std::min(next_at_, kill_at_);
    return;
  }
  begun_ = true;
  kill_at_ = now + grace;
  if (grace.count() > 0) signal_all(first_signal);
  bool ask_again = first_signal != SIGTERM && grace.count() > 0;
  next_signal_ = ask_again ? SIGTERM : SIGKILL;
  next_at_ = ask_again ? now + grace / 2 : kill_at_;
}

void Ending::step() {
  Clock::time_point now = Clock::now();
  if (!begun_ || now < next_at_) return;
  if (now >= kill_at_) next_signal_ = SIGKILL;
  signal_all(next_signal_);
  next_at_ = next_signal_ == SIGKILL ? now + std::chrono::milliseconds(20) : kill_at_;
  next_signal_ = SIGKILL;
}

std::chrono::milliseconds Ending::left() const {
  if (!begun_) return std::chrono::hours(24);
  auto span = std::chrono::ceil<std::chrono::milliseconds>(next_at_ - Clock::now());
  return std::max(span, std::chrono::milliseconds(0));
}

void Ending::signal_all(int signal) const {
  std::vector<posix::Descendant> descendants = posix::descendants_of(::getpid());
  for (const posix::Descendant& descendant : descendants) posix::signal_descendant(descendant, signal);
  // A stopped process acts on SIGTERM only when it is continued.
  if (signal != SIGKILL)
    for (const posix::Descendant& descendant : descendants) posix::signal_descendant(descendant, SIGCONT);
}

}  // namespace hvd::launcher
