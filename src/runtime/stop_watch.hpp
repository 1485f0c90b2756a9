#pragma once
// Why all ranks should leave their loops: signals that this process got, and the end of the job that the scheduler has
// set. The wishes go to the runtimes of the process, which agree with the other ranks on the step.
//
//  1. Signals are caught from the first start() on, and stay caught; who listens is told, also who comes later.
//  2. Where there is rank 0, the time is watched. It is time once what is left of the job is less than the lead: one
//     and a half times the longest write of a checkpoint so far, two steps, and the margin; never more than half of
//     what the job had when the watch began. Before that counts, the scheduler is asked once more, since a job that was
//     suspended, or whose limit was changed, has more time than it was told at its start.
//  3. Spans are measured by the clock that does not jump; the clock of the day is used by the scheduler's words alone.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "runtime/schedule.hpp"

namespace hvd::runtime {

// How long before the end all have to stop. A pure computation; any thread, no locks.
class Lead {
 public:
  explicit Lead(Clock::duration margin) : margin_(margin) {}
  void wrote_for(Clock::duration write);
  // should_stop() was called: what lies between two calls is a step.
  void asked(Clock::time_point now);
  Clock::duration of(Clock::duration whole) const;  // `whole`: what the job had when the watch began

 private:
  using Ticks = Clock::rep;
  Clock::duration margin_;
  std::atomic<Ticks> longest_write_{0}, step_{0}, last_{0};
};

// When the time is up, and when to look at it again. No threads, and no clock but what is handed in.
class EndOfJob {
 public:
  // What is left by the scheduler's word; nothing: it does not tell. `anew`: not what the job was told at its start.
  using TimeLeft = std::function<std::optional<std::chrono::seconds>(bool anew)>;
  EndOfJob(TimeLeft time_left, const Lead& lead) : time_left_(std::move(time_left)), lead_(lead) {}

  // The time that is left, if it is time to stop.
  std::optional<Clock::duration> look(Clock::time_point now);
  // Nothing: there is no end.
  std::optional<Clock::time_point> next_look() const { return next_look_; }

 private:
  TimeLeft time_left_;
  const Lead& lead_;
  bool has_begun_ = false;
  Clock::duration whole_{};
  std::optional<Clock::time_point> end_, next_look_;
};

class StopWatch {
 public:
  struct Settings {
    std::vector<int> signals;
    Clock::duration margin{};
    EndOfJob::TimeLeft time_left;  // null: the time is not watched
  };
  using Wish = std::function<void(StopCause cause, const std::string& reason)>;
  explicit StopWatch(Settings settings) : settings_(std::move(settings)), lead_(settings_.margin) {}
  // The process's; its thread ends with the process.
  StopWatch(const StopWatch&) = delete;

  // Local. The wish is told at once if there is one already. `owner` names the listener for remove().
  void add(const void* owner, bool has_rank_0, Wish wish);
  void remove(const void* owner);
  // From now on signals are caught and the time is watched. Again: nothing happens. `left`: signals that the program
  // keeps for itself.
  Status start(std::vector<int>& left);
  Lead& lead() { return lead_; }

 private:
  void run();
  void wish(StopCause cause, const std::string& reason);
  struct Listener {
    const void* owner;
    bool has_rank_0;
    Wish wish;
  };

  const Settings settings_;
  Lead lead_;
  std::mutex mutex_;  // guards the rest
  std::vector<Listener> listeners_;
  std::optional<std::pair<StopCause, std::string>> wish_;
  bool has_started_ = false;
};

}  // namespace hvd::runtime
