#pragma once
// What the agents have reported about each rank of a job.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/ids.hpp"

namespace hvd::launcher {

class RankTable {
 public:
  explicit RankTable(std::size_t size) : ranks_(size) {}
  std::size_t size() const noexcept { return ranks_.size(); }
  bool has(Rank rank) const noexcept { return rank.value >= 0 && index(rank) < ranks_.size(); }

  void start(Rank rank, int process);
  // For a job whose ranks come and go, where a rank of this table is a process: one more.
  void admit(Rank rank) { ranks_.resize(std::max(ranks_.size(), index(rank) + 1)); }
  // How this process ends, or has ended, does not count.
  void leave_out(Rank rank) { at(rank).is_left_out = true; }
  // Called if the rank's program could not be executed. The end of the rank's process is then not a failure of its own.
  void fail_to_start(Rank rank) { at(rank).could_start = false; }
  void end(Rank rank, int wait_status);

  int process_of(Rank rank) const { return at(rank).process; }  // process number of the rank; 0: unknown
  bool has_ended(Rank rank) const { return at(rank).ended; }
  bool could_start(Rank rank) const { return at(rank).could_start; }

  bool have_all_started() const noexcept { return started_ == ranks_.size(); }
  bool have_all_ended() const;
  bool have_all_succeeded() const;
  bool have_all_exited() const;   // each rank exited by itself, none by a signal; false if no rank counts
  bool want_another_run() const;  // true if all ranks have exited, some of them with again_code
  // If all ranks have exited: returns the exit code of the first rank whose code is not 0.
  int first_exit_code() const;

 private:
  struct State {
    int process = 0;
    bool could_start = true;
    bool ended = false;
    int wait_status = 0;
    bool is_left_out = false;
  };
  static std::size_t index(Rank rank) noexcept { return static_cast<std::size_t>(rank.value); }
  State& at(Rank rank) { return ranks_[index(rank)]; }
  const State& at(Rank rank) const { return ranks_[index(rank)]; }

  std::vector<State> ranks_;
  std::size_t started_ = 0;
};

}  // namespace hvd::launcher
