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
  stage.counts = {};
  return stage;
}

Task& StageTasks::with_counts(std::span<const std::int64_t> counts) {
  for (Entry& entry : entries_)
    if (std::equal(entry.counts.begin(), entry.counts.end(), counts.begin(), counts.end())) return *entry.task;
  if (entries_.size() == most_entries) entries_.clear();
  Collective stage = stage_;
  stage.counts = counts;
  if (!counts.empty()) stage.count = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  // The choice cannot fail, because the cost of the whole is possible only if the costs of its stages are.
  const Algorithm* algorithm = team_->selector->choose(stage, *team_).value();
  entries_.push_back({{counts.begin(), counts.end()}, algorithm->plan(stage, *team_)});
  return *entries_.back().task;
}

void StageTasks::rescale(double prescale, double postscale) {
  if (prescale == stage_.prescale && postscale == stage_.postscale) return;
  stage_.prescale = prescale;
  stage_.postscale = postscale;
  for (Entry& entry : entries_) entry.task->rescale(prescale, postscale);
}

}  // namespace hvd::collectives
