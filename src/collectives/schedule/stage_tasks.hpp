#pragma once
// The tasks of one stage of a collective that is made of others: planned when they are first wanted, kept for all
// batches of the same shape.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/task.hpp"
#include "collectives/algorithm.hpp"

namespace hvd::collectives {

// The collective of a stage; `count` elements go through one task. Of all stages only one scales before, and only one
// after.
enum class Scales : std::uint8_t { none, before, after };
Collective stage_of(const Collective& whole, Verb verb, Scales scales, std::int64_t count, Seat root = Seat{-1});

class StageTasks {
 public:
  // A null team: this rank has no part in the stage. Borrows the team.
  StageTasks(const Collective& stage, Team* team) : stage_(stage), team_(team) { stage_.counts = {}; }

  // All ranks of the team ask for the same in the same order.
  Task& any_size() { return with_counts({}); }
  Task& with_counts(std::span<const std::int64_t> counts);
  // The same as Task::rescale, for all tasks of the stage.
  void rescale(double prescale, double postscale);

 private:
  struct Entry {
    std::vector<std::int64_t> counts;
    std::unique_ptr<Task> task;
  };
  // Batches of ever new sizes leave plans behind that are never used again.
  static constexpr std::size_t most_entries = 32;

  Collective stage_;
  Team* team_;
  std::vector<Entry> entries_;
};

}  // namespace hvd::collectives
