#include "collectives/hierarchical/on_device/measurement.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "collectives/hierarchical/pipeline.hpp"
#include "collectives/schedule/stage_tasks.hpp"
#include "collectives/selection/selector.hpp"

namespace hvd::collectives::hierarchical {

namespace {

// The host sees the end of work on a device some time after it. So it looks once for several copies.
constexpr int copies_in_turn = 4;
// Pairs of a reduce_scatter and an allgather.
constexpr int pairs_in_turn = 2;

}  // namespace

Measurement::Measurement(Team& team, Team& rail, Slots& slots, Sequence first)
    : team_(team),
      rail_(rail),
      slots_(slots),
      device_(*team.device),
      first_(first),
      is_over_host_(rail.device == nullptr),
      has_node_(team.rails > 1) {
  sum_.dtype = DataType::f32;
  sum_.device = device_.kind();
  // A rank alone on its node packs into its share at once.
  packed_ = has_node_ ? slots.packed(0).memory.data() : slots.way(0).share.data();
  unpacked_ = has_node_ ? slots.unpacked(0).memory.data() : slots.way(1).share.data();
  const std::int64_t longest = share_bytes.back() / static_cast<std::int64_t>(sizeof(float));
  const auto plan_on_node = [&](Verb verb) {
    Collective stage = stage_of(sum_, verb, Scales::none, longest * team.rails);
    stage.stream = slots.node();
    return team.node->link->native()->plan(stage);
  };
  if (has_node_) {
    scatter_ = plan_on_node(Verb::reduce_scatter);
    gather_ = plan_on_node(Verb::allgather);
  }
  for (std::size_t length = 0; length < rails_.size(); ++length) {
    Collective stage =
        stage_of(sum_, Verb::allreduce, Scales::none, share_bytes[length] / static_cast<std::int64_t>(sizeof(float)));
    if (is_over_host_) stage.device = DeviceKind::host;
    else stage.stream = slots.rail();
    // The choice cannot fail: is_possible_on_device().
    rails_[length] = is_over_host_ ? rail.selector->choose(stage, rail).value()->plan(stage, rail)
                                   : rail.link->native()->plan(stage);
  }
}

Progress Measurement::step() {
  if (!std::exchange(has_begun_, true)) {
    began_ = team_.clock();
    fill();
  }
  while (!failure_ && !is_over_ && goes_on()) {
  }
  if (failure_) return Progress::failed;
  return is_over_ ? Progress::done : Progress::pending;
}

// Does the next thing. Returns false if it has to be waited for.
bool Measurement::goes_on() {
  if (on_link_ != nullptr) return step_task();
  if (left_ > 0) {
    launch();
    return true;
  }
  if (awaited_.token != 0) {
    auto there = device_.query(awaited_, nullptr);
    if (!there) refuse(there.error());
    if (!there || !*there) return false;
    awaited_ = {};
  }
  end_turn();
  return true;
}

// Batches of other plans may still be using the slots. Zeros are reduced as quickly as any numbers; what is in new
// memory might not be.
void Measurement::fill() {
  slots_.gather_streams();
  const std::int64_t longest = share_bytes.back() / static_cast<std::int64_t>(sizeof(float));
  copy(slots_.unpack(), packed_, nullptr, longest * team_.rails);
  copy(slots_.unpack(), unpacked_, nullptr, longest * team_.rails);
  if (has_node_) copy(slots_.unpack(), slots_.way(0).share.data(), nullptr, longest);
  if (is_over_host_) copy(slots_.unpack(), slots_.way(0).on_host.data(), nullptr, longest);
  await(slots_.unpack());
}

void Measurement::begin_turn() {
  turn_began_ = team_.clock();
  const Slots::Way& way = slots_.way(0);
  const auto copy_often = [&](Stream stream, std::byte* to, const std::byte* from, std::int64_t count) {
    for (int i = 0; i < copies_in_turn; ++i) copy(stream, to, from, count);
    await(stream);
  };
  switch (stage()) {
    case pack: return copy_often(slots_.pack(), packed_, unpacked_, share() * team_.rails);
    case node: left_ = has_node_ ? 2 * pairs_in_turn : 0; return;
    case out:
      if (is_over_host_) copy_often(slots_.rail(), way.on_host.data(), way.share.data(), share());
      return;
    case along_rail: left_ = 1; return;
    case back:
      if (is_over_host_) copy_often(slots_.back(), way.share.data(), way.on_host.data(), share());
      return;
    case stages: return;
  }
}

void Measurement::end_turn() {
  if (is_measured()) return derive_costs();
  if (turn_ >= 0) {
    const int parts = stage() == along_rail ? 1 : stage() == node ? pairs_in_turn : copies_in_turn;
    const double each = (team_.clock() - turn_began_) / parts;
    double& shortest = seconds_of(stage(), length());
    // The first time of a length, some library may have to prepare.
    const int time = turn_ / (stages * static_cast<int>(share_bytes.size()));
    if (time == 1 || (time > 1 && each < shortest)) shortest = each;
  }
  ++turn_;
  if (is_measured()) agree();
  else begin_turn();
}

void Measurement::copy(Stream stream, std::byte* to, const std::byte* from, std::int64_t count) {
  if (failure_) return;
  const devices::Move whole{from, to, count};
  if (auto moved = device_.move(stream, {&whole, 1}, {DataType::f32, DataType::f32, 1.0}); !moved)
    refuse(moved.error());
}

void Measurement::await(Stream stream) {
  if (failure_) return;
  auto event = device_.record(stream);
  if (event) awaited_ = *event;
  else refuse(event.error());
}

void Measurement::launch() {
  const Sequence next{first_.value + launched_++};
  --left_;
  Slots::Way& way = slots_.way(0);
  if (is_measured()) {
    const auto count = static_cast<std::int64_t>(seconds_of_.size());
    const Segment all{TensorView{reinterpret_cast<std::byte*>(seconds_of_.data()), count, DataType::f64}};
    agreement_->restart({&all, 1}, {&all, 1}, next);
    on_link_ = agreement_.get();
  } else if (stage() == along_rail) {
    std::byte* const at = is_over_host_ ? way.on_host.data() : way.share.data();
    restart(*rails_[length()], at, share(), at, share(), is_over_host_ ? sequence_of_place(next, 0) : next);
  } else if (left_ % 2 == 1) {
    restart(*scatter_, packed_, share() * team_.rails, way.share.data(), share(), next);
  } else {
    restart(*gather_, way.share.data(), share(), unpacked_, share() * team_.rails, next);
  }
}

void Measurement::restart(Task& task, std::byte* from, std::int64_t count_from, std::byte* to, std::int64_t count_to,
                          Sequence sequence) {
  const Segment source{TensorView{from, count_from, DataType::f32}}, target{TensorView{to, count_to, DataType::f32}};
  task.restart({&source, 1}, {&target, 1}, sequence);
  on_link_ = &task;
}

bool Measurement::step_task() {
  const Progress progress = on_link_->step();
  if (progress == Progress::pending) return false;
  if (progress == Progress::failed) {
    failure_ = on_link_->failure();
    return false;
  }
  if (progress == Progress::issued) awaited_ = on_link_->event();
  on_link_ = nullptr;
  return true;
}

void Measurement::agree() {
  seconds_ = team_.clock() - began_;
  Collective longest;
  longest.dtype = DataType::f64;
  longest.op = ReduceOp::max;
  longest.count = static_cast<std::int64_t>(seconds_of_.size());
  auto algorithm = team_.host->selector->choose(longest, *team_.host);
  if (!algorithm) return refuse(algorithm.error());
  agreement_ = (*algorithm)->plan(longest, *team_.host);
  left_ = 1;
}

// Two points give a line. Times that do not grow with the length have no part that does.
void Measurement::derive_costs() {
  const auto line = [&](Stage stage, std::int64_t parts) -> MessageCost {
    const double shorter = seconds_of(stage, 0), longer = seconds_of(stage, 1);
    const auto bytes = static_cast<double>(parts);
    const double per_byte =
        std::max(0.0, (longer - shorter) / (static_cast<double>(share_bytes[1] - share_bytes[0]) * bytes));
    return {std::max(0.0, shorter - per_byte * static_cast<double>(share_bytes[0]) * bytes), per_byte};
  };
  // Of the node and of what is packed, whole chunks were measured.
  costs_ = {line(pack, team_.rails), line(node, team_.rails), line(out, 1), line(along_rail, 1), line(back, 1)};
  is_over_ = true;
}

Seat Measurement::waiting_for() const {
  if (on_link_ == nullptr) return Seat{-1};
  const Seat seat = on_link_->waiting_for();
  if (seat.value < 0 || on_link_ == agreement_.get()) return seat;
  const Group& group = stage() == along_rail ? rail_.group : team_.node->group;
  return team_.group.seat_of(group.rank_at(seat));
}

void Measurement::refuse(const Error& error) {
  if (!failure_)
    failure_ = Error(error.code, "rank " + std::to_string(team_.group.rank_at(team_.group.me).value) +
                                     " cannot measure the stages of reductions on its device: " + error.message);
}

}  // namespace hvd::collectives::hierarchical
