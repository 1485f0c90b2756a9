// Allreduce in three stages. Reduce_scatter on the node: the k-th rank of every node gets its node's share k of a
// chunk. Allreduce of share k on rail k. Allgather on the node. An element is first added up within the node, then
// along the rail.
#include <string>

#include "base/panic.hpp"
#include "collectives/hierarchical/rail_shares.hpp"
#include "collectives/hierarchical/tasks.hpp"

namespace hvd::collectives::hierarchical {
namespace {

class Allreduce final : public Task {
 public:
  Allreduce(const Collective& collective, Team& team)
      : dtype_(collective.dtype),
        local_rank_(team.node->group.me.value),
        has_rail_(team.rail != nullptr),
        shares_(team, collective.dtype, collective.count),
        chunk_hint_(shares_.chunk_count(0)),
        pipeline_(team),
        first_(
            per_track<StageTasks>(stage_of(collective, Verb::reduce_scatter, Scales::before, chunk_hint_), team.node)),
        middle_(per_track<StageTasks>(stage_of(collective, Verb::allreduce, Scales::after, shares_.full_share(0)),
                                      team.rail)),
        last_(per_track<StageTasks>(stage_of(collective, Verb::allgather, Scales::none, chunk_hint_), team.node)) {}

  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence sequence) override {
    in_.assign(in, dtype_);
    out_.assign(out, dtype_);
    if (out_.count() != in_.count())
      panic("allreduce: expected " + std::to_string(in_.count()) + " elements of output, found " +
            std::to_string(out_.count()));
    shares_.restart(in_.count());
    pipeline_.restart(shares_.chunks(), sequence);
  }
  Progress step() override {
    while (auto turn = pipeline_.next()) pipeline_.started(*turn, start(*turn));
    return pipeline_.progress();
  }
  void rescale(double prescale, double postscale) override {
    for (StageTasks& stage : first_) stage.rescale(prescale, 1.0);
    for (StageTasks& stage : middle_) stage.rescale(1.0, postscale);
  }
  const Error& failure() const override { return pipeline_.failure(); }
  Seat waiting_for() const override { return pipeline_.waiting_for(); }

 private:
  Task* start(const Turn& turn) {
    from_.clear();
    to_.clear();
    switch (turn.stage) {
      case Stage::first: {
        shares_.append_padded(in_, turn.chunk, from_);
        if (has_rail_) to_.push_back(share(turn, shares_.padded_count(turn.chunk, local_rank_)));
        return begin(shares_.node_task(first_[turn.track], turn.chunk), turn);
      }
      case Stage::middle: {
        if (!has_rail_) return nullptr;
        from_.push_back(share(turn, shares_.count(turn.chunk, local_rank_)));
        to_ = from_;
        return begin(middle_[turn.track].any_size(), turn);
      }
      case Stage::last: break;
    }
    if (has_rail_) from_.push_back(share(turn, shares_.padded_count(turn.chunk, local_rank_)));
    shares_.append_padded(out_, turn.chunk, to_);
    return begin(shares_.node_task(last_[turn.track], turn.chunk), turn);
  }
  Task* begin(Task& task, const Turn& turn) {
    task.restart(from_, to_, turn.place);
    return &task;
  }
  Segment share(const Turn& turn, std::int64_t count) {
    return shares_.padded_segment(memory_[turn.track], turn.chunk, count);
  }

  const DataType dtype_;
  const int local_rank_;
  const bool has_rail_;
  RailShares shares_;
  const std::int64_t chunk_hint_;  // a typical size of a chunk, for the plans of the stages
  Pipeline pipeline_;
  std::array<StageTasks, Pipeline::track_count> first_, middle_, last_;
  std::array<Scratch, Pipeline::track_count> memory_;  // this rank's share, including padding
  SegmentArray in_, out_;
  std::vector<Segment> from_, to_;
};

}  // namespace

std::unique_ptr<Task> plan_allreduce(const Collective& collective, Team& team) {
  return std::make_unique<Allreduce>(collective, team);
}

}  // namespace hvd::collectives::hierarchical
