#pragma once
// The leader's part of the agreement, on the engine of the rank that writes the log: hears what the ranks ask for and
// where all have arrived, lets the coordinator decide, appends what it decided.
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/deadline.hpp"
#include "base/world.hpp"
#include "runtime/coordinator.hpp"
#include "runtime/observer.hpp"
#include "runtime/schedule.hpp"
#include "runtime/stall.hpp"
#include "transport/node_board.hpp"

namespace hvd::runtime {

class Leader {
 public:
  Leader(const World& world, const Config& config, transport::NodeBoard& board,
         const std::vector<Observer*>& observers);

  // One look at everything that could have changed. True if anything had.
  bool step(int batches_in_flight);
  // Records wait for room in the log, which nobody announces.
  bool is_writing() const { return !unlogged_.empty(); }
  // Somebody (perhaps this rank itself) has waited long: one report for all who wait.
  void hear_of_stall(const StallRequest& stall);
  // A stall that can only be ended by leaving what is under way; nothing as long as there is none.
  const std::optional<Error>& verdict() const { return verdict_; }

 private:
  void hear(Rank from, const Request& request);
  std::vector<StalledName> find_stalled() const;
  void append(const Record& record);
  bool append_waiting();

  const World& world_;
  const Config& config_;
  transport::NodeBoard& board_;
  const std::vector<Observer*>& observers_;
  Coordinator coordinator_;
  std::list<Buffer> unlogged_;
  Buffer scratch_;
  Clock::time_point last_report_;
  std::optional<Error> verdict_;
};

}  // namespace hvd::runtime
