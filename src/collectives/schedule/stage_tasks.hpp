#pragma once
// The tasks of one stage of a composed collective. A task is planned when it is first needed, and kept for all batches
// of the same shape.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/task.hpp"
#include "collectives/algorithm.hpp"

namespace hvd::collectives {

// Returns the collective of a stage. `count` elements are handled by one task. Only one stage applies the prescale, and
// only one stage applies the postscale.
enum class Scales : std::uint8_t { none, before, after };
Collective stage_of(const Collective& whole, Verb verb, Scales scales, std::int64_t count, Seat root = Seat{-1});

class StageTasks {
 public:
  // Uses the team, which must outlive this object. A null team means that this rank has no part in the stage.
  StageTasks(const Collective& stage, Team* team) : stage_(stage), team_(team) { stage_.counts = {}; }

  // All ranks of the team ask for the same tasks in the same order.
  Task& any_size() { return with_counts({}); }
  Task& with_counts(std::span<const std::int64_t> counts);
  // Calls Task::rescale for all tasks of the stage.
  void rescale(double prescale, double postscale);

 private:
  struct Entry {
    std::vector<std::int64_t> counts;
    std::unique_ptr<Task> task;
  };
  // The limit exists because batches of always new sizes leave plans that are never used again.
  static constexpr std::size_t most_entries = 32;

  Collective stage_;
  Team* team_;
  std::vector<Entry> entries_;
};

}  // namespace hvd::collectives
