#pragma once
// Notices why all ranks should leave their loops: a signal that this process got, or the end of the job that the
// scheduler has set. It tells the runtimes of the process, and they agree with the other ranks on the step.
//
//  1. From the first start() on, signals are caught until the process ends. All listeners are told of a signal, also
//     those that are added later.
//  2. In the process of rank 0 the remaining time is watched. All ranks should leave when less time is left than the
//     lead. The lead is one and a half times the longest write of a checkpoint so far, plus two steps, plus the margin.
//     It is never more than half of the time that the job had when the watch began. Before it acts, the watch asks the
//     scheduler once more, because a job that was suspended, or whose limit was changed, has more time than it was told
//     at its start.
//  3. Spans of time are measured by the steady clock. The clock of the day is used only to read the scheduler's answer.
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
#include "runtime/agreement/schedule.hpp"

namespace hvd::runtime {

// Computes the lead: how long before the job's end all ranks have to stop. A pure computation without locks; may be
// used by any thread.
class Lead {
 public:
  explicit Lead(Clock::duration margin) : margin_(margin) {}
  void wrote_for(Clock::duration write);
  // should_stop() was called at this time. The time between two calls is a step.
  void asked(Clock::time_point now);
  Clock::duration of(Clock::duration whole) const;  // `whole` is the time that the job had when the watch began.

 private:
  using Ticks = Clock::rep;
  Clock::duration margin_;
  std::atomic<Ticks> longest_write_{0}, step_{0}, last_{0};
};

// Decides when all ranks have to stop, and when to check the time again. It has no threads, and its only clock is the
// one that is passed in.
class EndOfJob {
 public:
  // Returns the time that is left according to the scheduler; nothing if the scheduler does not tell. With `anew` the
  // scheduler is asked again, and the values from the job's start are not used.
  using TimeLeft = std::function<std::optional<std::chrono::seconds>(bool anew)>;
  EndOfJob(TimeLeft time_left, const Lead& lead) : time_left_(std::move(time_left)), lead_(lead) {}

  // Returns the time that is left if the ranks have to stop now; otherwise nothing.
  std::optional<Clock::duration> look(Clock::time_point now);
  // Returns the time of the next check; nothing if the job has no end.
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
    EndOfJob::TimeLeft time_left;  // null if the time is not watched
  };
  using RequestStop = std::function<void(StopCause cause, const std::string& reason)>;
  explicit StopWatch(Settings settings) : settings_(std::move(settings)), lead_(settings_.margin) {}
  // There is one for the process. Its thread runs until the process ends.
  StopWatch(const StopWatch&) = delete;

  // A local call. If there is a reason to stop already, the listener is told at once. `owner` names the listener for
  // remove().
  void add(const void* owner, bool has_rank_0, RequestStop request_stop);
  void remove(const void* owner);
  // Begins to catch signals and to watch the time. A second call does nothing. `left` gets the signals that are not
  // caught, because the program handles them itself.
  Status start(std::vector<int>& left);
  Lead& lead() { return lead_; }

 private:
  void run();
  void request_stop(StopCause cause, const std::string& reason);
  struct Listener {
    const void* owner;
    bool has_rank_0;
    RequestStop request_stop;
  };

  const Settings settings_;
  Lead lead_;
  std::mutex mutex_;  // guards the members below
  std::vector<Listener> listeners_;
  std::optional<std::pair<StopCause, std::string>> request_;
  bool has_started_ = false;
};

}  // namespace hvd::runtime
