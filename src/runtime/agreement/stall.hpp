#pragma once
// Reports to the user which ranks keep the others waiting: the text of the report, and the times when it is due.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/settings/config.hpp"
#include "base/world.hpp"
#include "native/posix/memory/wait_word.hpp"

namespace hvd::runtime {

// A name for which some ranks wait, with the ranks that have not submitted it.
struct StalledName {
  std::string name;
  std::vector<Rank> missing;
};

// Decides when to look for operations that wait too long, and what to do about the one that has waited longest. A look
// visits all operations in flight. Therefore it happens only when the first of them can be due, not whenever an
// operation begins or ends.
class StallWatch {
 public:
  explicit StallWatch(const Config& config);

  // Called when an operation has begun to wait.
  void begun(Clock::time_point now) {
    if (!next_look_) plan_look(now, now);
  }
  // Returns the time until look() must be called. It is infinite while nothing waits, or if the check is switched off.
  std::chrono::nanoseconds until_due(Clock::time_point now) const;
  bool is_due(Clock::time_point now) const { return next_look_ && now >= *next_look_; }
  enum class Verdict : std::uint8_t { fine, report, end };
  // `since` is the time at which the operation began that has waited longest; empty if none is in flight.
  Verdict look(std::optional<Clock::time_point> since, Clock::time_point now);
  // Returns how long an operation that began at `since` has waited. The time in which this process was stopped is not
  // counted.
  Clock::duration waited(Clock::time_point since, Clock::time_point now) const {
    return now - std::max(since, continued_);
  }

 private:
  void plan_look(Clock::time_point since, Clock::time_point now);

  Clock::duration check_{}, shutdown_{};  // limits of time; zero: switched off
  Clock::duration pause_{};               // the longest time between two looks
  Clock::time_point continued_{};
  std::optional<Clock::time_point> next_look_, reported_;
};

// True if the kernel says that the process of this rank (on this node) is stopped or has ended.
bool is_halted(const World& world, Rank rank);
std::vector<Rank> halted_on_my_node(const World& world);
// Returns text such as ", process is stopped (SIGSTOP or a debugger)". Empty if the state is not known or explains
// nothing.
std::string what_it_does(const World& world, Rank rank);

// The id of what these reports tell (base/error_ids.hpp). print_stall() and end_by_stall() add it.
inline constexpr std::string_view missing_ranks_id = "HVD2201";

// Returns the report in Horovod's wording: a line "Missing ranks:", then one line per rank with host, process and the
// state of the process.
std::string stall_report(const World& world, const std::vector<StalledName>& stalled, double waited_s, bool final);

// A batch that was issued on a device of `by` and has not ended there.
struct StallOnDevice {
  Rank by;
  std::string name;    // of its first operation
  std::string device;  // "cuda device 0"
  double waited_s = 0;
  bool is_held_up_by_program = false;  // earlier work of the program has not ended there
  bool final = false;
};
// Returns the report. `halted` are ranks whose processes are stopped or have ended.
std::string stall_report(const World& world, const StallOnDevice& stall, const std::vector<Rank>& halted);
void print_stall(const std::string& report, bool final);
// Returns the error by which a rank ends after such a report.
Error end_by_stall(const std::string& report);

// Returns the text about ranks that have not left their loops, this long after all ranks had to leave them.
std::string report_missing_acks(const World& world, const std::vector<bool>& has_acked, double waited_s);

}  // namespace hvd::runtime
