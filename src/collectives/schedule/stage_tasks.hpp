#pragma once
// The tasks of one stage of a composed collective: one for each algorithm that the selector chooses for some size. A
// task is planned when it is first needed, and kept.
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
  StageTasks(const Collective& stage, Team* team) : stage_(stage), team_(team) {}

  // All ranks of the team ask for the same tasks in the same order.
  // Returns the task for the stage's usual size, which divides its elements evenly.
  Task& any_size() { return resized(stage_.count, {}); }
  // Returns the task for these numbers of elements of all seats (allgather, reduce_scatter).
  Task& with_counts(std::span<const std::int64_t> counts);
  // Calls Task::rescale for all tasks of the stage.
  void rescale(double prescale, double postscale);

 private:
  struct Entry {
    const Algorithm* algorithm;
    std::unique_ptr<Task> task;
  };
  Task& resized(std::int64_t count, std::span<const std::int64_t> counts);
  Task& planned(std::int64_t count);

  Collective stage_;
  Team* team_;
  std::vector<Entry> entries_;
  Task* latest_ = nullptr;  // the task for this number of elements
  std::int64_t latest_count_ = 0;
};

}  // namespace hvd::collectives
