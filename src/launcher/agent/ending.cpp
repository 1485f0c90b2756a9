#include "launcher/agent/ending.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "launcher/agent/audience.hpp"
#include "native/posix/processes/process.hpp"
#include "native/posix/processes/process_end.hpp"

namespace hvd::launcher {
namespace {

// The time between two looks at the processes that save.
constexpr std::chrono::milliseconds time_between_looks{50};

bool has_ended(pid_t process) {
  return posix::wait_for_process_end(process, std::chrono::milliseconds(0)) || !posix::parent_of(process);
}

}  // namespace

void Ending::begin(int first_signal, std::chrono::milliseconds grace, bool is_sent) {
  Clock::time_point now = Clock::now();
  if (begun_) {
    kill_at_ = std::min(kill_at_, now + grace);
    next_at_ = std::min(next_at_, kill_at_);
    return;
  }
  begun_ = true;
  kill_at_ = now + grace;
  if (grace.count() > 0 && !is_sent) ask(first_signal);
  bool ask_again = first_signal != SIGTERM && grace.count() > 0;
  next_signal_ = ask_again ? SIGTERM : SIGKILL;
  next_at_ = ask_again ? now + grace / 2 : kill_at_;
}

void Ending::step() {
  Clock::time_point now = Clock::now();
  if (!begun_) return;
  if (!savers_.empty()) {
    std::erase_if(savers_, [](const posix::Descendant& it) { return has_ended(it.process); });
    if (savers_.empty()) signal_all(SIGTERM);
  }
  if (now < next_at_) return;
  if (now >= kill_at_) next_signal_ = SIGKILL;
  if (next_signal_ == SIGKILL) signal_all(SIGKILL);
  else ask(next_signal_);
  next_at_ = next_signal_ == SIGKILL ? now + std::chrono::milliseconds(20) : kill_at_;
  next_signal_ = SIGKILL;
}

std::chrono::milliseconds Ending::left() const {
  if (!begun_) return std::chrono::hours(24);
  auto span = std::chrono::ceil<std::chrono::milliseconds>(next_at_ - Clock::now());
  if (!savers_.empty()) span = std::min(span, time_between_looks);
  return std::max(span, std::chrono::milliseconds(0));
}

std::vector<posix::Descendant> Ending::condemned() const {
  std::vector<posix::Descendant> all = posix::descendants_of(::getpid());
  std::set<pid_t> spared(spared_.begin(), spared_.end());
  for (std::size_t before = 0; before != spared.size() && !spared.empty();) {
    before = spared.size();
    for (const posix::Descendant& each : all)
      if (spared.contains(each.parent)) spared.insert(each.process);
  }
  std::erase_if(all, [&](const posix::Descendant& each) { return spared.contains(each.process); });
  return all;
}

bool Ending::has_somebody() const {
  return spared_.empty() ? posix::has_children() : !condemned().empty();
}

void Ending::ask(int signal) {
  const std::vector<posix::Descendant> all = condemned();
  if (signal == SIGTERM) savers_ = joined_among(all, Joined::listens_for_stops);
  if (savers_.empty()) return signal_all(signal);
  for (const posix::Descendant& each : savers_) posix::signal_descendant(each, signal);
  for (const posix::Descendant& each : all) posix::signal_descendant(each, SIGCONT);
}

void Ending::signal_all(int signal) const {
  std::vector<posix::Descendant> descendants = condemned();
  for (const posix::Descendant& descendant : descendants) posix::signal_descendant(descendant, signal);
  // A stopped process acts on SIGTERM only after it is continued.
  if (signal != SIGKILL)
    for (const posix::Descendant& descendant : descendants) posix::signal_descendant(descendant, SIGCONT);
}

}  // namespace hvd::launcher
