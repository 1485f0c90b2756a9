// Allgather in three stages. On the node: every rank gets the node's contribution to a chunk. On rail k: every rank
// gets the k-th part of every node's contribution. On the node again: every rank gets the data that the rails have
// brought from the other nodes. The first stage is left out if every rank of the node carries its own piece.
#include <algorithm>
#include <string>

#include "base/panic.hpp"
#include "collectives/hierarchical/node_shares.hpp"
#include "collectives/hierarchical/tasks.hpp"
#include "collectives/schedule/scratch.hpp"
#include "collectives/schedule/stage_tasks.hpp"

namespace hvd::collectives::hierarchical {
namespace {

class Allgather final : public Task {
 public:
  Allgather(const Collective& collective, Team& team)
      : dtype_(collective.dtype),
        me_(team.group.me),
        local_rank_(team.node->group.me.value),
        has_rail_(team.rail != nullptr),
        shares_(team, collective),
        pipeline_(team),
        first_(per_track<StageTasks>(stage_of(collective, Verb::allgather, Scales::none, 0), team.node)),
        middle_(per_track<StageTasks>(stage_of(collective, Verb::allgather, Scales::none, 0), team.rail)),
        last_(per_track<StageTasks>(stage_of(collective, Verb::allgather, Scales::none, 0), team.node)) {}

  void resize(std::span<const std::int64_t> sent, std::span<const std::int64_t> received) override {
    shares_.resize(sent, received);
  }
  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence sequence) override {
    in_.assign(in, dtype_);
    assign_output(out);
    shares_.restart(out_.count());
    if (in_.count() != shares_.share_count(me_))
      panic("allgather: expected " + std::to_string(shares_.share_count(me_)) + " elements of input, found " +
            std::to_string(in_.count()));
    pipeline_.restart(shares_.chunks(), sequence);
  }
  Progress step() override {
    while (auto turn = pipeline_.next()) pipeline_.started(*turn, start(*turn));
    return pipeline_.progress();
  }
  const Error& failure() const override { return pipeline_.failure(); }
  Seat waiting_for() const override { return pipeline_.waiting_for(); }

 private:
  // Takes the output. This rank must pass on data even if its output has no room for them. Such data are kept in other
  // memory.
  void assign_output(std::span<const Segment> out) {
    out_.assign(out, dtype_);
    auto is_unwanted = [](const Segment& segment) { return segment.view.data == nullptr && segment.view.count > 0; };
    if (std::none_of(out.begin(), out.end(), is_unwanted)) return;
    to_.assign(out.begin(), out.end());
    std::byte* memory = unwanted_.reserve(static_cast<std::size_t>(out_.count()) * size_of(dtype_));
    for (Segment& segment : to_) {
      if (is_unwanted(segment)) segment.view.data = memory;
      memory += segment.view.bytes();
    }
    out_.assign(to_, dtype_);
  }

  Task* start(const Turn& turn) {
    from_.clear();
    to_.clear();
    counts_.clear();
    switch (turn.stage) {
      case Stage::first: return start_on_node(turn);
      case Stage::middle: return has_rail_ ? start_on_rail(turn) : nullptr;
      case Stage::last: break;
    }
    return start_spreading(turn);
  }

  Task* start_on_node(const Turn& turn) {
    if (shares_.is_own(turn.chunk)) return nullptr;
    append_own(turn.chunk);
    for (Seat seat : shares_.members()) {
      counts_.push_back(shares_.piece_count(turn.chunk, seat));
      out_.append_range(shares_.piece_begin(turn.chunk, seat), counts_.back(), to_);
    }
    return begin(first_, turn);
  }

  Task* start_on_rail(const Turn& turn) {
    bool is_own = shares_.is_own(turn.chunk);
    if (is_own) append_own(turn.chunk);
    else shares_.append_carried(out_, turn.chunk, shares_.my_node(), local_rank_, from_);
    for (int node = 0; node < shares_.nodes(); ++node) {
      counts_.push_back(shares_.carried(turn.chunk, node, local_rank_));
      if (node == shares_.my_node() && !is_own) append_nothing(counts_.back());
      else shares_.append_carried(out_, turn.chunk, node, local_rank_, to_);
    }
    return begin(middle_, turn);
  }

  // Sends the data that one rail has brought to all ranks of the node.
  Task* start_spreading(const Turn& turn) {
    bool is_own = shares_.is_own(turn.chunk);
    counts_.assign(shares_.members().size(), 0);
    for (int rail = 0; rail < shares_.rails(); ++rail) {
      std::int64_t& count = counts_[static_cast<std::size_t>(rail)];
      for (int node = 0; node < shares_.nodes(); ++node) {
        if (node == shares_.my_node() && !is_own) continue;
        count += shares_.carried(turn.chunk, node, rail);
        shares_.append_carried(out_, turn.chunk, node, rail, rail == local_rank_ ? from_ : to_);
      }
      if (rail == local_rank_) append_nothing(count);
    }
    return begin(last_, turn);
  }

  Task* begin(std::array<StageTasks, Pipeline::track_count>& tasks, const Turn& turn) {
    Task& task = tasks[turn.track].with_counts(counts_);
    task.restart(from_, to_, turn.place);
    return &task;
  }
  void append_own(std::int64_t chunk) {
    in_.append_range(shares_.piece_begin(chunk, me_) - shares_.share_begin(me_), shares_.piece_count(chunk, me_),
                     from_);
  }
  // Adds room without memory for data that are already in the output.
  void append_nothing(std::int64_t count) {
    if (count > 0) to_.push_back({TensorView{nullptr, count, dtype_}});
  }

  const DataType dtype_;
  const Seat me_;
  const int local_rank_;
  const bool has_rail_;
  NodeShares shares_;
  Pipeline pipeline_;
  std::array<StageTasks, Pipeline::track_count> first_, middle_, last_;
  SegmentArray in_, out_;
  Scratch unwanted_;
  std::vector<Segment> from_, to_;
  std::vector<std::int64_t> counts_;
};

}  // namespace

std::unique_ptr<Task> plan_allgather(const Collective& collective, Team& team) {
  return std::make_unique<Allgather>(collective, team);
}

}  // namespace hvd::collectives::hierarchical
