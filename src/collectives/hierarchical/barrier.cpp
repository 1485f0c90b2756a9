// Barrier in three stages: on the node, then among one rank of every node, then on the node again.
#include "collectives/hierarchical/tasks.hpp"
#include "collectives/schedule/stage_tasks.hpp"

namespace hvd::collectives::hierarchical {
namespace {

class Barrier final : public Task {
 public:
  Barrier(const Collective& collective, Team& team)
      : is_on_first_rail_(team.node->group.me.value == 0),
        pipeline_(team),
        first_(stage_of(collective, Verb::barrier, Scales::none, 0), team.node),
        middle_(stage_of(collective, Verb::barrier, Scales::none, 0), team.rail),
        last_(stage_of(collective, Verb::barrier, Scales::none, 0), team.node) {}

  void restart(std::span<const Segment>, std::span<const Segment>, Sequence sequence) override {
    pipeline_.restart(1, sequence);
  }
  Progress step() override {
    while (auto turn = pipeline_.next()) pipeline_.started(*turn, start(*turn));
    return pipeline_.progress();
  }
  const Error& failure() const override { return pipeline_.failure(); }
  Seat waiting_for() const override { return pipeline_.waiting_for(); }

 private:
  Task* start(const Turn& turn) {
    if (turn.stage == Stage::middle && !is_on_first_rail_) return nullptr;
    StageTasks& tasks = turn.stage == Stage::first ? first_ : turn.stage == Stage::middle ? middle_ : last_;
    Task& task = tasks.any_size();
    task.restart({}, {}, turn.place);
    return &task;
  }

  const bool is_on_first_rail_;
  Pipeline pipeline_;
  StageTasks first_, middle_, last_;
};

}  // namespace

std::unique_ptr<Task> plan_barrier(const Collective& collective, Team& team) {
  return std::make_unique<Barrier>(collective, team);
}

}  // namespace hvd::collectives::hierarchical
