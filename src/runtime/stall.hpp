#pragma once
// Tells people which ranks keep the others waiting: the wording of the report, and when it is due.
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/deadline.hpp"
#include "base/world.hpp"
#include "native/posix/wait_word.hpp"

namespace hvd::runtime {

// A name that some ranks wait for, and the ranks that have not submitted it.
struct StalledName {
  std::string name;
  std::vector<Rank> missing;
};

// When to look for operations that wait too long, and what to do about the one that has waited longest. A look visits
// all operations in flight, so it is made when the first of them can be due, and not whenever one comes or goes.
class StallWatch {
 public:
  explicit StallWatch(const Config& config);

  // An operation has begun to wait.
  void begun(Clock::time_point now) {
    if (!next_look_) plan_look(now, now);
  }
  // The time until look() must be called; forever while nothing waits, or if the check is off.
  std::chrono::nanoseconds until_due(Clock::time_point now) const;
  bool is_due(Clock::time_point now) const { return next_look_ && now >= *next_look_; }
  enum class Verdict : std::uint8_t { fine, report, end };
  // `since`: when the operation began that has waited longest; nothing if none is in flight.
  Verdict look(std::optional<Clock::time_point> since, Clock::time_point now);

 private:
  void plan_look(Clock::time_point since, Clock::time_point now);

  Clock::duration check_{}, shutdown_{};  // zero: off
  std::optional<Clock::time_point> next_look_, reported_;
};

// The kernel says that the process of this rank (on my node) is stopped or gone.
bool is_halted(const World& world, Rank rank);
std::vector<Rank> halted_on_my_node(const World& world);
// ", process is stopped (SIGSTOP or a debugger)" and the like; empty if that explains nothing or is not known.
std::string what_it_does(const World& world, Rank rank);

// Horovod's wording: a line "Missing ranks:" and a line per rank; each rank with host, process and what the process
// does.
std::string stall_report(const World& world, const std::vector<StalledName>& stalled, double waited_s, bool final);

// Names the ranks that have not left their loops, so long after all were to.
std::string report_on_heed(const World& world, const std::vector<bool>& has_heeded, double waited_s);

}  // namespace hvd::runtime
