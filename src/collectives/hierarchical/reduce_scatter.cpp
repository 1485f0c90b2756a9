// Reduce_scatter in three stages. On the node: the k-th rank gets the node's sum of the k-th part of every node's share
// of a chunk. On rail k: this part becomes complete. Within the node: every rank takes its own piece out of the parts.
// The last stage is left out if every rank of the node has exactly its own piece. An element is first added up within
// the node, then along the rail.
#include <string>

#include "base/panic.hpp"
#include "collectives/hierarchical/node_shares.hpp"
#include "collectives/hierarchical/tasks.hpp"
#include "collectives/schedule/scratch.hpp"
#include "collectives/schedule/stage_tasks.hpp"

namespace hvd::collectives::hierarchical {
namespace {

class ReduceScatter final : public Task {
 public:
  ReduceScatter(const Collective& collective, Team& team)
      : dtype_(collective.dtype),
        me_(team.group.me),
        local_rank_(team.node->group.me.value),
        has_rail_(team.rail != nullptr),
        shares_(team, collective),
        pipeline_(team),
        first_(per_track<StageTasks>(stage_of(collective, Verb::reduce_scatter, Scales::before, 0), team.node)),
        middle_(per_track<StageTasks>(stage_of(collective, Verb::reduce_scatter, Scales::after, 0), team.rail)),
        last_(per_track<StageTasks>(stage_of(collective, Verb::allgather, Scales::none, 0), team.node)) {}

  void resize(std::span<const std::int64_t> sent, std::span<const std::int64_t> received) override {
    shares_.resize(sent, received);
  }
  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence sequence) override {
    in_.assign(in, dtype_);
    out_.assign(out, dtype_);
    shares_.restart(in_.count());
    if (out_.count() != shares_.share_count(me_))
      panic("reduce_scatter: expected " + std::to_string(shares_.share_count(me_)) + " elements of output, found " +
            std::to_string(out_.count()));
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
    counts_.clear();
    switch (turn.stage) {
      case Stage::first: return start_on_node(turn);
      case Stage::middle: return has_rail_ ? start_on_rail(turn) : nullptr;
      case Stage::last: break;
    }
    return shares_.is_own(turn.chunk) ? nullptr : start_handing_out(turn);
  }

  Task* start_on_node(const Turn& turn) {
    counts_.assign(shares_.members().size(), 0);
    for (int rail = 0; rail < shares_.rails(); ++rail)
      for (int node = 0; node < shares_.nodes(); ++node) {
        counts_[static_cast<std::size_t>(rail)] += shares_.carried(turn.chunk, node, rail);
        shares_.append_carried(in_, turn.chunk, node, rail, from_);
      }
    append_memory(node_sums_[turn.track], counts_[static_cast<std::size_t>(local_rank_)], to_);
    return begin(first_, turn);
  }

  Task* start_on_rail(const Turn& turn) {
    std::int64_t all = 0;
    for (int node = 0; node < shares_.nodes(); ++node) {
      counts_.push_back(shares_.carried(turn.chunk, node, local_rank_));
      all += counts_.back();
    }
    append_memory(node_sums_[turn.track], all, from_);
    if (shares_.is_own(turn.chunk)) append_own(turn.chunk);
    else append_memory(totals_[turn.track], counts_[static_cast<std::size_t>(shares_.my_node())], to_);
    return begin(middle_, turn);
  }

  Task* start_handing_out(const Turn& turn) {
    counts_.assign(shares_.members().size(), 0);
    for (int rail = 0; rail < shares_.rails(); ++rail)
      counts_[static_cast<std::size_t>(rail)] = shares_.carried(turn.chunk, shares_.my_node(), rail);
    append_memory(totals_[turn.track], counts_[static_cast<std::size_t>(local_rank_)], from_);
    for (Seat seat : shares_.members()) {
      std::int64_t count = shares_.piece_count(turn.chunk, seat);
      if (seat == me_) append_own(turn.chunk);
      else if (count > 0) to_.push_back({TensorView{nullptr, count, dtype_}});
    }
    return begin(last_, turn);
  }

  Task* begin(std::array<StageTasks, Pipeline::track_count>& tasks, const Turn& turn) {
    Task& task = tasks[turn.track].with_counts(counts_);
    task.restart(from_, to_, turn.place);
    return &task;
  }
  void append_own(std::int64_t chunk) {
    out_.append_range(shares_.piece_begin(chunk, me_) - shares_.share_begin(me_), shares_.piece_count(chunk, me_), to_);
  }
  void append_memory(Scratch& memory, std::int64_t count, std::vector<Segment>& to) {
    if (count == 0) return;
    std::byte* data = memory.reserve(static_cast<std::size_t>(count) * size_of(dtype_));
    to.push_back({TensorView{data, count, dtype_}});
  }

  const DataType dtype_;
  const Seat me_;
  const int local_rank_;
  const bool has_rail_;
  NodeShares shares_;
  Pipeline pipeline_;
  std::array<StageTasks, Pipeline::track_count> first_, middle_, last_;
  // The parts that this rank's rail carries for all nodes, and the part that it has brought for this node.
  std::array<Scratch, Pipeline::track_count> node_sums_, totals_;
  SegmentArray in_, out_;
  std::vector<Segment> from_, to_;
  std::vector<std::int64_t> counts_;
};

}  // namespace

std::unique_ptr<Task> plan_reduce_scatter(const Collective& collective, Team& team) {
  return std::make_unique<ReduceScatter>(collective, team);
}

}  // namespace hvd::collectives::hierarchical
