// Broadcast. On the root's node: a broadcast, after which the k-th rank sends share k of a chunk along rail k. On the
// other nodes: an allgather of the shares that came along the rails.
#include "collectives/hierarchical/rail_shares.hpp"
#include "collectives/hierarchical/tasks.hpp"

namespace hvd::collectives::hierarchical {
namespace {

class Broadcast final : public Task {
 public:
  Broadcast(const Collective& collective, Team& team)
      : dtype_(collective.dtype),
        local_rank_(team.node->group.me.value),
        has_rail_(team.rail != nullptr),
        is_root_(team.group.me == collective.root),
        root_on_node_(team.node->group.seat_of(team.group.rank_at(collective.root))),
        shares_(team, collective.dtype, collective.count),
        chunk_hint_(shares_.chunk_count(0)),
        pipeline_(team),
        first_(per_track<StageTasks>(stage_of(collective, Verb::broadcast, Scales::none, chunk_hint_, root_on_node_),
                                     team.node)),
        middle_(per_track<StageTasks>(stage_of(collective, Verb::broadcast, Scales::none, shares_.full_share(0),
                                               Seat{team.node_of[static_cast<std::size_t>(collective.root.value)]}),
                                      team.rail)),
        last_(per_track<StageTasks>(stage_of(collective, Verb::allgather, Scales::none, chunk_hint_), team.node)) {}

  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence sequence) override {
    in_.assign(in, dtype_);
    out_.assign(out, dtype_);
    shares_.restart(is_root_ ? in_.count() : out_.count());
    pipeline_.restart(shares_.chunks(), sequence);
  }
  Progress step() override {
    while (auto turn = pipeline_.next()) pipeline_.started(*turn, start(*turn));
    return pipeline_.progress();
  }
  const Error& failure() const override { return pipeline_.failure(); }
  Seat waiting_for() const override { return pipeline_.waiting_for(); }

 private:
  bool is_roots_node() const { return root_on_node_.value >= 0; }

  Task* start(const Turn& turn) {
    from_.clear();
    to_.clear();
    std::int64_t chunk = turn.chunk;
    switch (turn.stage) {
      case Stage::first: {
        if (!is_roots_node()) return nullptr;
        std::int64_t begin_at = shares_.chunk_begin(chunk), count = shares_.chunk_count(chunk);
        if (is_root_) in_.append_range(begin_at, count, from_);
        if (!is_root_) append_kept(turn, begin_at, count, to_);
        else if (out_.count() != 0) out_.append_range(begin_at, count, to_);
        return begin(first_[turn.track].any_size(), turn);
      }
      case Stage::middle: {
        if (!has_rail_) return nullptr;
        std::int64_t begin_at = shares_.begin(chunk, local_rank_), count = shares_.count(chunk, local_rank_);
        if (!is_roots_node()) to_.push_back(share(turn, count));
        else if (is_root_) in_.append_range(begin_at, count, from_);
        else append_kept(turn, begin_at, count, from_);
        return begin(middle_[turn.track].any_size(), turn);
      }
      case Stage::last: break;
    }
    if (is_roots_node()) return nullptr;
    if (has_rail_) from_.push_back(share(turn, shares_.padded_count(chunk, local_rank_)));
    shares_.append_padded(out_, chunk, to_);
    return begin(shares_.node_task(last_[turn.track], chunk), turn);
  }
  Task* begin(Task& task, const Turn& turn) {
    task.restart(from_, to_, turn.place);
    return &task;
  }

  Segment share(const Turn& turn, std::int64_t count) {
    return shares_.padded_segment(memory_[turn.track], turn.chunk, count);
  }

  // Adds this rank's output. If this rank needs no output, adds other memory from which it can pass the data on.
  void append_kept(const Turn& turn, std::int64_t begin_at, std::int64_t count, std::vector<Segment>& to) {
    std::size_t element_bytes = size_of(dtype_);
    std::size_t position = static_cast<std::size_t>(begin_at - shares_.chunk_begin(turn.chunk)) * element_bytes;
    out_.visit(begin_at, count, [&](std::byte* data, std::int64_t part) {
      if (data == nullptr)
        data =
            memory_[turn.track].reserve(static_cast<std::size_t>(shares_.chunk_elements()) * element_bytes) + position;
      position += static_cast<std::size_t>(part) * element_bytes;
      to.push_back({TensorView{data, part, dtype_}});
    });
  }

  const DataType dtype_;
  const int local_rank_;
  const bool has_rail_, is_root_;
  const Seat root_on_node_;  // the root's seat in its node; -1 on the other nodes
  RailShares shares_;
  const std::int64_t chunk_hint_;  // a typical size of a chunk, for the plans of the stages
  Pipeline pipeline_;
  std::array<StageTasks, Pipeline::track_count> first_, middle_, last_;
  // On the root's node: data that are only passed on, by their place in the chunk. On the other nodes: this rank's
  // share, including padding.
  std::array<Scratch, Pipeline::track_count> memory_;
  SegmentArray in_, out_;
  std::vector<Segment> from_, to_;
};

}  // namespace

std::unique_ptr<Task> plan_broadcast(const Collective& collective, Team& team) {
  return std::make_unique<Broadcast>(collective, team);
}

}  // namespace hvd::collectives::hierarchical
