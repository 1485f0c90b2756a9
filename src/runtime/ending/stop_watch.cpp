#include "runtime/ending/stop_watch.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/log.hpp"
#include "native/posix/machine/host_identity.hpp"
#include "native/posix/memory/wait_word.hpp"
#include "native/posix/processes/signal_catcher.hpp"
#include "native/posix/processes/signals.hpp"
#include "native/posix/processes/thread.hpp"

namespace hvd::runtime {
namespace {

using namespace std::chrono_literals;

// The scheduler's limit is read again after this time, because somebody may change it.
constexpr Clock::duration longest_between_looks = 30min, shortest_between_looks = 1s;

void raise_to(std::atomic<Clock::rep>& value, Clock::rep other) {
  Clock::rep now = value.load(std::memory_order_relaxed);
  while (now < other && !value.compare_exchange_weak(now, other)) continue;
}

}  // namespace

void Lead::wrote_for(Clock::duration write) {
  raise_to(longest_write_, write.count());
}

// The estimate of a step decreases slowly. So a single long step (an evaluation, a first step that compiles) counts
// less and less.
void Lead::asked(Clock::time_point now) {
  const Ticks at = now.time_since_epoch().count();
  const Ticks before = last_.exchange(at, std::memory_order_relaxed);
  if (before == 0 || at <= before) return;
  const Ticks faded = step_.load(std::memory_order_relaxed) / 16 * 15;
  step_.store(std::max(faded, at - before), std::memory_order_relaxed);
}

Clock::duration Lead::of(Clock::duration whole) const {
  const Ticks write = longest_write_.load(std::memory_order_relaxed), step = step_.load(std::memory_order_relaxed);
  return std::min(margin_ + Clock::duration(write + write / 2 + 2 * step), whole / 2);
}

std::optional<Clock::duration> EndOfJob::look(Clock::time_point now) {
  const bool is_first = !std::exchange(has_begun_, true);
  if (!is_first && !end_) return std::nullopt;
  auto told = time_left_(!is_first);
  if (told) end_ = now + *told;
  if (!end_) {  // true if the job has no end
    next_look_.reset();
    return std::nullopt;
  }
  Clock::duration left = std::max(*end_ - now, Clock::duration::zero());
  if (is_first) whole_ = left;
  whole_ = std::max(whole_, left);
  const Clock::duration until_due = left - lead_.of(whole_);
  if (until_due <= Clock::duration::zero()) {
    next_look_ = now + longest_between_looks;  // the ranks were told already; later looks serve only runtimes that
                                               // start later
    return left;
  }
  // The lead may grow while this thread sleeps, because checkpoints and steps may take longer.
  next_look_ =
      now + std::min(std::max(until_due / 2, std::min(shortest_between_looks, until_due)), longest_between_looks);
  return std::nullopt;
}

void StopWatch::add(const void* owner, bool has_rank_0, RequestStop request_stop) {
  std::lock_guard lock(mutex_);
  if (request_) request_stop(request_->first, request_->second);
  listeners_.push_back({owner, has_rank_0, std::move(request_stop)});
  if (!has_started_) return;
  posix::SignalCatcher::set_listening(true);
  posix::SignalCatcher::poke();
}

void StopWatch::remove(const void* owner) {
  std::lock_guard lock(mutex_);
  std::erase_if(listeners_, [owner](const Listener& it) { return it.owner == owner; });
  if (listeners_.empty()) posix::SignalCatcher::set_listening(false);
}

Status StopWatch::start(std::vector<int>& left) {
  std::lock_guard lock(mutex_);
  if (has_started_) return {};
  auto thread = posix::start_thread("hvd-stop", [this] { run(); });
  if (!thread) return thread.error();
  thread->detach();
  has_started_ = true;
  posix::SignalCatcher::set_listening(!listeners_.empty());
  left = posix::SignalCatcher::take(settings_.signals);
  return {};
}

void StopWatch::run() {
  EndOfJob end(settings_.time_left, lead_);
  bool is_first = true;
  for (;;) {
    bool watches_time = false;
    {
      std::lock_guard lock(mutex_);
      watches_time = settings_.time_left && !request_ &&
                     std::ranges::any_of(listeners_, [](const Listener& it) { return it.has_rank_0; });
    }
    const Clock::time_point now = Clock::now();
    if (watches_time && (std::exchange(is_first, false) || (end.next_look() && now >= *end.next_look())))
      if (auto left = end.look(now))
        request_stop(StopCause::time,
                     "the scheduler ends the job in " +
                         std::to_string(std::chrono::duration_cast<std::chrono::seconds>(*left).count()) + " s");
    while (auto signal = posix::SignalCatcher::next())
      request_stop(posix::asks_for_the_end(*signal) ? StopCause::terminated : StopCause::warned,
                   posix::name_of_signal(*signal) + " came to process " + std::to_string(::getpid()) + " on host " +
                       posix::host_name());
    const bool has_limit = watches_time && end.next_look();
    posix::SignalCatcher::wait(has_limit ? std::max<std::chrono::nanoseconds>(*end.next_look() - Clock::now(), 1ms)
                                         : posix::WaitWord::forever);
  }
}

void StopWatch::request_stop(StopCause cause, const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (request_) return;
  request_ = {cause, reason};
  for (const Listener& it : listeners_) it.request_stop(cause, reason);
}

}  // namespace hvd::runtime
