// Collectives over several nodes, made of collectives inside the nodes and along the rails. Written against Team alone:
// which links and algorithms the stages use is the selector's choice.
//
// The batch is cut into chunks, and every chunk is dealt out to the rails: rail k carries its k-th share. The stages of
// a chunk, each of which may have no task on some ranks:
//              first (node)                       middle (rail)              last (node)
//   allreduce  reduce_scatter: the k-th rank of   allreduce of share k       allgather
//              every node gets its node's share k
//   broadcast  on the root's node: broadcast      broadcast of share k       on the other nodes: allgather
//   barrier    barrier                            first rail only: barrier   barrier
// Uneven nodes have as many rails as the smallest has ranks; the other ranks own shares of no elements.
//
// Several chunks are under way at once, each in a lane, so that nodes and network work at the same time. The tasks of a
// link are restarted in one order on all ranks, whatever is done first:
//  1. On the node: the first stages of as many chunks as there are lanes; then by turns the last stage of the next
//  chunk and
//     the first stage of the chunk that takes over its lane; then the last stages that remain.
//  2. On the rail: by chunk.
//
// The addition tree of an element is the node's, then the rail's. 16-bit types are rounded once per stage; the prescale
// is the first stage's, the postscale the middle's.
#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "base/panic.hpp"
#include "collectives/algorithm.hpp"
#include "collectives/schedule/cost_model.hpp"
#include "collectives/schedule/scratch.hpp"
#include "collectives/schedule/segment_array.hpp"
#include "collectives/selector.hpp"

namespace hvd::collectives {

namespace {

constexpr std::size_t full_share_bytes = 256 << 10;
constexpr int lane_count = 4;
// Stage tasks get the batch's number and, below it, their place in the order of their link.
constexpr int bits_for_place = 24;

// A stage of all chunks of one lane.
enum class State : std::uint8_t { waiting, running, done };

// The shares that a plan with counts is made for: four sizes per octave, so few plans serve all sizes and a fifth is
// padding at most.
std::int64_t padded(std::int64_t share) {
  std::int64_t step = 1;
  while (step * 8 < share) step *= 2;
  return (share + step - 1) / step * step;
}

void append_zeros(std::int64_t count, DataType dtype, std::vector<Segment>& to) {
  if (count > 0) to.push_back({TensorView{nullptr, count, dtype, Device{}}, Event{}});
}

class HierarchicalTask final : public Task {
 public:
  HierarchicalTask(const Collective& collective, Team& team);
  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence sequence) override;
  Progress step() override;
  const Error& failure() const override { return *failure_; }
  Seat waiting_for() const override;

 private:
  struct NodeTasks {
    std::int64_t share = 0;  // elements per rail, padding included; 0: any
    std::unique_ptr<Task> first, last;
  };
  struct Lane {
    std::int64_t chunk = 0;
    State first = State::waiting, middle = State::waiting, last = State::waiting;
    std::vector<NodeTasks> plans;
    NodeTasks* node = nullptr;  // of the present chunk
    std::unique_ptr<Task> rail;
    Scratch share, relay;
    std::vector<Segment> in, out;
  };
  struct Launch {
    std::int64_t chunk;
    bool is_first;
  };

  // ---- plans ----
  void plan_node_tasks(Lane& lane, std::int64_t share);
  std::unique_ptr<Task> plan_stage(Verb verb, Team& team, std::span<const std::int64_t> counts, bool scales_before,
                                   bool scales_after);
  NodeTasks* find_node_tasks(Lane& lane, std::int64_t share);

  // ---- the order of things ----
  Lane& lane_of(std::int64_t chunk) { return lanes_[static_cast<std::size_t>(chunk % lane_count)]; }
  std::int64_t first_ones() const { return std::min<std::int64_t>(chunks_, lane_count); }
  Launch node_launch(std::int64_t place) const;
  bool launch_on_node();
  bool launch_on_rail();
  // True if the stage has just become done.
  bool step_stage(State& state, Task* task);
  void take_chunk(Lane& lane, std::int64_t chunk);

  // ---- shares ----
  std::int64_t chunk_begin(std::int64_t chunk) const { return chunk * chunk_elements_; }
  std::int64_t chunk_count(std::int64_t chunk) const { return std::min(chunk_elements_, total_ - chunk_begin(chunk)); }
  // Elements of a share of the chunk; the last shares may have fewer.
  std::int64_t full_share(std::int64_t chunk) const { return (chunk_count(chunk) + team_.rails - 1) / team_.rails; }
  std::int64_t plan_share(std::int64_t chunk) const {
    return is_barrier() || is_even_ ? full_share(chunk) : padded(full_share(chunk));
  }
  std::int64_t share_begin(std::int64_t chunk, int rail) const {
    return chunk_begin(chunk) + std::min(chunk_count(chunk), rail * full_share(chunk));
  }
  std::int64_t share_count(std::int64_t chunk, int rail) const {
    return std::min(chunk_count(chunk), (rail + 1) * full_share(chunk)) -
           std::min(chunk_count(chunk), rail * full_share(chunk));
  }
  bool owns_share() const { return local_rank_ < team_.rails; }

  // ---- segments of the stages ----
  void append_padded_shares(const SegmentArray& tensors, std::int64_t chunk, std::vector<Segment>& to) const;
  void append_relayed(Lane& lane, std::int64_t begin, std::int64_t count, std::vector<Segment>& to);
  Segment share_of_lane(Lane& lane, std::int64_t count);
  void start_first(Lane& lane, Sequence place);
  void start_middle(Lane& lane, Sequence place);
  void start_last(Lane& lane, Sequence place);

  bool is_barrier() const { return collective_.verb == Verb::barrier; }
  bool is_root() const { return team_.group.me == collective_.root; }
  Sequence place_in_order(std::int64_t place) const {
    return Sequence{(sequence_.value << bits_for_place) + static_cast<std::uint64_t>(place)};
  }

  Collective collective_;
  Team& team_;
  const int local_rank_;
  std::int64_t chunk_elements_;
  Seat node_root_, rail_root_;  // broadcast; node_root_ is -1 on the nodes without the root
  bool is_even_ = false;        // the nodes of the team have equally many ranks
  bool has_first_ = true, has_middle_ = true, has_last_ = true;

  SegmentArray in_, out_;
  Sequence sequence_;
  std::int64_t total_ = 0, chunks_ = 0;
  std::int64_t node_launches_ = 0, rail_launches_ = 0, finished_ = 0;
  std::array<Lane, lane_count> lanes_;
  std::optional<Error> failure_;
};

// ---- plans
// -----------------------------------------------------------------------------------------------------------

HierarchicalTask::HierarchicalTask(const Collective& collective, Team& team)
    : collective_(collective),
      team_(team),
      local_rank_(team.node->group.me.value),
      chunk_elements_(static_cast<std::int64_t>(full_share_bytes / size_of(collective.dtype)) * team.rails) {
  collective_.counts = {};
  // A rank without a rail shares its node with more ranks than there are rails. The others know how many nodes there
  // are.
  is_even_ = team.rail != nullptr && team.rail->size() * team.rails == team.size();
  has_middle_ = team.rail != nullptr && owns_share();
  if (collective.verb == Verb::broadcast) {
    node_root_ = team.node->group.seat_of(team.group.rank_at(collective.root));
    rail_root_ = Seat{team.node_of[static_cast<std::size_t>(collective.root.value)]};
    has_first_ = node_root_.value >= 0;
    has_last_ = !has_first_;
  }
  if (is_barrier()) has_middle_ = has_middle_ && local_rank_ == 0;

  const Verb middle = collective.verb;
  for (Lane& lane : lanes_) {
    if (is_even_ || is_barrier()) plan_node_tasks(lane, 0);
    if (has_middle_) lane.rail = plan_stage(middle, *team.rail, {}, false, true);
  }
}

void HierarchicalTask::plan_node_tasks(Lane& lane, std::int64_t share) {
  std::vector<std::int64_t> counts;
  if (share > 0) {
    counts.assign(static_cast<std::size_t>(team_.node->size()), 0);
    std::fill_n(counts.begin(), team_.rails, share);
  }
  NodeTasks tasks;
  tasks.share = share;
  switch (collective_.verb) {
    case Verb::allreduce:
      tasks.first = plan_stage(Verb::reduce_scatter, *team_.node, counts, true, false);
      tasks.last = plan_stage(Verb::allgather, *team_.node, counts, false, false);
      break;
    case Verb::broadcast:
      if (has_first_) tasks.first = plan_stage(Verb::broadcast, *team_.node, {}, false, false);
      if (has_last_) tasks.last = plan_stage(Verb::allgather, *team_.node, counts, false, false);
      break;
    default:
      tasks.first = plan_stage(Verb::barrier, *team_.node, {}, false, false);
      tasks.last = plan_stage(Verb::barrier, *team_.node, {}, false, false);
  }
  lane.plans.push_back(std::move(tasks));
}

std::unique_ptr<Task> HierarchicalTask::plan_stage(Verb verb, Team& team, std::span<const std::int64_t> counts,
                                                   bool scales_before, bool scales_after) {
  Collective stage = collective_;
  stage.verb = verb;
  stage.prescale = scales_before ? collective_.prescale : 1.0;
  stage.postscale = scales_after ? collective_.postscale : 1.0;
  stage.root = &team == team_.node ? node_root_ : rail_root_;
  stage.counts = counts;
  std::int64_t chunk = std::min(collective_.count, chunk_elements_);
  stage.count = &team == team_.node ? chunk : chunk / team_.rails;
  return team_.selector->choose(stage, team).plan(stage, team);
}

HierarchicalTask::NodeTasks* HierarchicalTask::find_node_tasks(Lane& lane, std::int64_t share) {
  if (is_even_ || is_barrier()) share = 0;
  for (NodeTasks& tasks : lane.plans)
    if (tasks.share == share) return &tasks;
  return nullptr;
}

// ---- the order of things
// ---------------------------------------------------------------------------------------------

void HierarchicalTask::restart(std::span<const Segment> in, std::span<const Segment> out, Sequence sequence) {
  in_.assign(in, collective_.dtype);
  out_.assign(out, collective_.dtype);
  sequence_ = sequence;
  total_ = is_barrier() ? 0 : collective_.verb == Verb::broadcast && !is_root() ? out_.count() : in_.count();
  if (collective_.verb == Verb::allreduce && out_.count() != total_)
    panic("allreduce: expected " + std::to_string(total_) + " elements of output, found " +
          std::to_string(out_.count()));
  chunks_ = is_barrier() ? 1 : (total_ + chunk_elements_ - 1) / chunk_elements_;
  node_launches_ = rail_launches_ = finished_ = 0;
  // What is planned, and when, follows from the sizes alone: all ranks of the node do it in the same order.
  for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
    if (chunk == first_ones()) chunk = std::max(chunk, chunks_ - 1);
    if (find_node_tasks(lane_of(chunk), plan_share(chunk)) == nullptr)
      plan_node_tasks(lane_of(chunk), plan_share(chunk));
  }
  for (std::int64_t chunk = 0; chunk < first_ones(); ++chunk) take_chunk(lane_of(chunk), chunk);
}

void HierarchicalTask::take_chunk(Lane& lane, std::int64_t chunk) {
  lane.chunk = chunk;
  lane.first = lane.middle = lane.last = State::waiting;
  lane.node = find_node_tasks(lane, plan_share(chunk));
}

HierarchicalTask::Launch HierarchicalTask::node_launch(std::int64_t place) const {
  if (place < first_ones()) return {place, true};
  std::int64_t turn = place - first_ones(), takeovers = chunks_ - first_ones();
  if (turn >= 2 * takeovers) return {turn - takeovers, false};
  if (turn % 2 == 0) return {turn / 2, false};
  return {first_ones() + turn / 2, true};
}

bool HierarchicalTask::launch_on_node() {
  if (node_launches_ == 2 * chunks_) return false;
  auto [chunk, is_first] = node_launch(node_launches_);
  Lane& lane = lane_of(chunk);
  if (is_first) {
    if (lane.chunk != chunk) {
      if (lane.last != State::done) return false;
      take_chunk(lane, chunk);
    }
    if (has_first_) start_first(lane, place_in_order(node_launches_));
    lane.first = has_first_ ? State::running : State::done;
  } else {
    if (lane.middle != State::done) return false;
    if (has_last_) start_last(lane, place_in_order(node_launches_));
    lane.last = has_last_ ? State::running : State::done;
    if (!has_last_) ++finished_;
  }
  ++node_launches_;
  return true;
}

bool HierarchicalTask::launch_on_rail() {
  if (rail_launches_ == chunks_) return false;
  Lane& lane = lane_of(rail_launches_);
  if (lane.chunk != rail_launches_ || lane.first != State::done) return false;
  if (has_middle_) start_middle(lane, place_in_order(rail_launches_));
  lane.middle = has_middle_ ? State::running : State::done;
  ++rail_launches_;
  return true;
}

bool HierarchicalTask::step_stage(State& state, Task* task) {
  if (state != State::running || failure_) return false;
  Progress progress = task->step();
  if (progress == Progress::failed) failure_ = task->failure();
  if (progress != Progress::done) return false;
  state = State::done;
  return true;
}

Progress HierarchicalTask::step() {
  for (bool moves = true; moves && !failure_;) {
    moves = false;
    for (Lane& lane : lanes_) {
      if (lane.node == nullptr) continue;
      moves |= step_stage(lane.first, lane.node->first.get());
      moves |= step_stage(lane.middle, lane.rail.get());
      if (step_stage(lane.last, lane.node->last.get())) {
        ++finished_;
        moves = true;
      }
    }
    if (failure_) break;
    while (launch_on_rail()) moves = true;
    while (launch_on_node()) moves = true;
  }
  if (failure_) return Progress::failed;
  return finished_ == chunks_ ? Progress::done : Progress::pending;
}

Seat HierarchicalTask::waiting_for() const {
  for (const Lane& lane : lanes_) {
    auto seat_in_team = [this](const Task& task, const Team& stage_team) {
      Seat seat = task.waiting_for();
      return seat.value < 0 ? seat : team_.group.seat_of(stage_team.group.rank_at(seat));
    };
    if (lane.first == State::running) return seat_in_team(*lane.node->first, *team_.node);
    if (lane.middle == State::running) return seat_in_team(*lane.rail, *team_.rail);
    if (lane.last == State::running) return seat_in_team(*lane.node->last, *team_.node);
  }
  return Seat{-1};
}

// ---- segments of the stages
// ------------------------------------------------------------------------------------------

// All shares of the chunk, each filled up with zeros to the length that the node's tasks are planned for.
void HierarchicalTask::append_padded_shares(const SegmentArray& tensors, std::int64_t chunk,
                                            std::vector<Segment>& to) const {
  for (int rail = 0; rail < team_.rails; ++rail) {
    tensors.append_range(share_begin(chunk, rail), share_count(chunk, rail), to);
    append_zeros(plan_share(chunk) - share_count(chunk, rail), collective_.dtype, to);
  }
}

// My output; where I want none, memory from which I can still pass it on.
void HierarchicalTask::append_relayed(Lane& lane, std::int64_t begin, std::int64_t count, std::vector<Segment>& to) {
  std::size_t element_bytes = size_of(collective_.dtype);
  std::size_t position = static_cast<std::size_t>(begin - chunk_begin(lane.chunk)) * element_bytes;
  out_.visit(begin, count, [&](std::byte* data, std::int64_t part) {
    if (data == nullptr)
      data = lane.relay.reserve(static_cast<std::size_t>(chunk_elements_) * element_bytes) + position;
    position += static_cast<std::size_t>(part) * element_bytes;
    to.push_back({TensorView{data, part, collective_.dtype, Device{}}, Event{}});
  });
}

Segment HierarchicalTask::share_of_lane(Lane& lane, std::int64_t count) {
  std::size_t bytes = static_cast<std::size_t>(plan_share(lane.chunk)) * size_of(collective_.dtype);
  return {TensorView{lane.share.reserve(bytes), count, collective_.dtype, Device{}}, Event{}};
}

void HierarchicalTask::start_first(Lane& lane, Sequence place) {
  lane.in.clear();
  lane.out.clear();
  std::int64_t begin = chunk_begin(lane.chunk);
  if (collective_.verb == Verb::allreduce) {
    append_padded_shares(in_, lane.chunk, lane.in);
    if (owns_share()) lane.out.push_back(share_of_lane(lane, plan_share(lane.chunk)));
  } else if (collective_.verb == Verb::broadcast) {
    if (is_root()) in_.append_range(begin, chunk_count(lane.chunk), lane.in);
    if (!is_root()) append_relayed(lane, begin, chunk_count(lane.chunk), lane.out);
    else if (out_.count() != 0) out_.append_range(begin, chunk_count(lane.chunk), lane.out);
  }
  lane.node->first->restart(lane.in, lane.out, place);
}

void HierarchicalTask::start_middle(Lane& lane, Sequence place) {
  lane.in.clear();
  lane.out.clear();
  if (!is_barrier()) {
    std::int64_t begin = share_begin(lane.chunk, local_rank_), count = share_count(lane.chunk, local_rank_);
    if (collective_.verb == Verb::allreduce || !has_first_) {
      lane.out.push_back(share_of_lane(lane, count));
      if (collective_.verb == Verb::allreduce) lane.in = lane.out;
    } else if (is_root()) {
      in_.append_range(begin, count, lane.in);
    } else {
      append_relayed(lane, begin, count, lane.in);
    }
  }
  lane.rail->restart(lane.in, lane.out, place);
}

void HierarchicalTask::start_last(Lane& lane, Sequence place) {
  lane.in.clear();
  lane.out.clear();
  if (!is_barrier()) {
    if (owns_share()) lane.in.push_back(share_of_lane(lane, plan_share(lane.chunk)));
    append_padded_shares(out_, lane.chunk, lane.out);
  }
  lane.node->last->restart(lane.in, lane.out, place);
}

// ---- the algorithm
// ---------------------------------------------------------------------------------------------------

class Hierarchical final : public Algorithm {
 public:
  const char* name() const override { return "hierarchical"; }
  bool does(Verb verb) const override {
    return verb == Verb::allreduce || verb == Verb::broadcast || verb == Verb::barrier;
  }
  std::string_view addition_order(const Collective&, const Team&) const override { return "hierarchical"; }

  // Taken from the number of rails alone, which all ranks know, and the node's and the rail's share of the work.
  Cost cost(const Collective& collective, const Team& team) const override {
    if (!does(collective.verb) || team.node == nullptr || team.selector == nullptr) return Cost::impossible();
    if (collective.verb == Verb::broadcast && team.node_of.empty()) return Cost::impossible();
    const int nodes = std::max(1, team.size() / team.rails);
    const MessageCost network = message_cost(team), memory = message_cost(Team{});
    double ways = collective.verb == Verb::broadcast ? 1 : 2;
    double latency_s = ways * (doublings(team.rails) * memory.latency_s + doublings(nodes) * network.latency_s) + 1e-6;
    double inside_s = ways * bytes_of(collective) * (team.rails - 1) / team.rails * memory.seconds_per_byte;
    double between_s = ways * bytes_of(collective) / team.rails * network.seconds_per_byte;
    return {latency_s + inside_s + between_s, true};
  }

  std::unique_ptr<Task> plan(const Collective& collective, Team& team) const override {
    return std::make_unique<HierarchicalTask>(collective, team);
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_hierarchical() {
  return std::make_unique<Hierarchical>();
}

}  // namespace hvd::collectives
