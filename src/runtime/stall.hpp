#pragma once
// Tells people who keeps everybody waiting: the wording of the report, and when it is due.
#include <chrono>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/deadline.hpp"
#include "base/world.hpp"
#include "native/posix/wait_word.hpp"

namespace hvd::runtime {

// A name that somebody waits for, and who has not submitted it.
struct StalledName {
  std::string name;
  std::vector<Rank> missing;
};

class StallWatch {
 public:
  explicit StallWatch(const Config& config) : config_(config) {}

  // Call whenever something began or ended; `waiting`: an op is in flight.
  void note(bool progress, bool waiting);
  // When to look again; forever if nothing is in flight or the check is off.
  std::chrono::nanoseconds until_due() const;
  bool report_due();  // once per check time without progress
  bool shutdown_due() const;
  double waited_s() const;

 private:
  const Config& config_;
  bool waiting_ = false;
  Clock::time_point quiet_since_ = Clock::now();
  Clock::time_point next_report_ = Clock::now();
};

// The kernel says that the process of this rank (on my node) is stopped or gone.
bool is_halted(const World& world, Rank rank);
std::vector<Rank> halted_on_my_node(const World& world);
// ", process is stopped (SIGSTOP or a debugger)" and the like; empty if that explains nothing or is not known.
std::string what_it_does(const World& world, Rank rank);

// Horovod's wording: a line "Missing ranks:" and a line per rank; each rank with host, process and what the process
// does.
std::string stall_report(const World& world, const std::vector<StalledName>& stalled, double waited_s, bool final);

}  // namespace hvd::runtime
