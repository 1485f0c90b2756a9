#include "collectives/schedule/stage_tasks.hpp"

#include <algorithm>
#include <numeric>

#include "collectives/selection/selector.hpp"

namespace hvd::collectives {

Collective stage_of(const Collective& whole, Verb verb, Scales scales, std::int64_t count, Seat root) {
  Collective stage = whole;
  stage.verb = verb;
  if (scales != Scales::before) stage.prescale = 1.0;
  if (scales != Scales::after) stage.postscale = 1.0;
  stage.root = root;
  stage.count = count;
  return stage;
}

Task& StageTasks::with_counts(std::span<const std::int64_t> counts) {
  return resized(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), counts);
}

Task& StageTasks::resized(std::int64_t count, std::span<const std::int64_t> counts) {
  Task& task = planned(count);
  if (stage_.verb == Verb::allgather) task.resize({}, counts);
  if (stage_.verb == Verb::reduce_scatter) task.resize(counts, {});
  return task;
}

Task& StageTasks::planned(std::int64_t count) {
  if (latest_ != nullptr && latest_count_ == count) return *latest_;
  Collective stage = stage_;
  stage.count = count;
  // The choice cannot fail, because the cost of the whole is possible only if the costs of its stages are.
  const Algorithm* algorithm = team_->selector->choose(stage, *team_).value();
  auto entry = std::ranges::find(entries_, algorithm, &Entry::algorithm);
  if (entry == entries_.end()) entry = entries_.insert(entry, {algorithm, algorithm->plan(stage, *team_)});
  latest_count_ = count;
  return *(latest_ = entry->task.get());
}

void StageTasks::rescale(double prescale, double postscale) {
  if (prescale == stage_.prescale && postscale == stage_.postscale) return;
  stage_.prescale = prescale;
  stage_.postscale = postscale;
  for (Entry& entry : entries_) entry.task->rescale(prescale, postscale);
}

}  // namespace hvd::collectives
