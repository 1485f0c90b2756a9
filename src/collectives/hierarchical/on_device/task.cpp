// Allreduce and Adasum of tensors in device memory, in stages. Every chunk goes through these, each on a stream of its
// own:
//
//  1. Pack: the tensors' elements are moved to one piece of memory, and scaled.
//  2. Reduce_scatter over the node's device link: this rank gets its share of the chunk.
//  3. Out, rail, back: the share is copied to host memory, the ranks of the rail reduce it over their host link, and
//     the result is copied back. If the rail is a device link, it reduces the share where it is (the torus).
//  4. Allgather over the node's device link.
//  5. Unpack: the elements are moved to the tensors.
//
// On a node of one rank, 2 and 4 do nothing.
//
// Streams wait for each other by events, and never for work that is not yet queued. The host looks at two places:
// before the first chunk, until the tensors are ready (the caller's stream might never get there), and between out and
// rail. So the task is issued when the last chunk is on its way back.
//
// All ranks launch the work of device links in the same order: the reduce_scatters of as many chunks as there are slots
// for, then alternately the allgather of the next chunk and the reduce_scatter of the chunk that takes over its slot. A
// rail that is a device link reduces a share right after its reduce_scatter.
#include "collectives/hierarchical/on_device/task.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/panic.hpp"
#include "collectives/hierarchical/on_device/cut.hpp"
#include "collectives/hierarchical/on_device/estimate.hpp"
#include "collectives/hierarchical/on_device/measured_task.hpp"
#include "collectives/hierarchical/on_device/slots.hpp"
#include "collectives/hierarchical/pipeline.hpp"
#include "collectives/schedule/adasum_task.hpp"
#include "collectives/schedule/stage_tasks.hpp"
#include "collectives/selection/selector.hpp"

namespace hvd::collectives::hierarchical {

namespace {

using devices::Device;
using devices::Move;
using devices::Treatment;

class OnDevice final : public Task {
 public:
  OnDevice(const Collective& collective, Team& team, std::int64_t share)
      : collective_(collective),
        team_(team),
        device_(*team.device),
        rank_(team.group.rank_at(team.group.me)),
        rail_(rail_of(collective, team)),
        is_over_host_(rail_.device == nullptr),
        has_node_(team.rails > 1),
        share_(share),
        cut_(collective, team.rails),
        slots_(Slots::of(team)) {
    rescale(collective.prescale, collective.postscale);
    if (slots_->failure()) refuse(*slots_->failure());
    const std::int64_t usual = share_of_batch(collective.count);
    if (has_node_) {
      scatter_ = plan_on(*team.node, Verb::reduce_scatter, usual * team.rails);
      gather_ = plan_on(*team.node, Verb::allgather, usual * team.rails);
    }
    if (!is_over_host_) rail_on_device_ = plan_on(rail_, Verb::allreduce, usual);
    else
      for (auto& rail : rails_) rail = plan_rail(usual);
  }
  ~OnDevice() override {
    if (awaited().token != 0) (void)device_.query(awaited(), &devices::nobody());
    slots_->finish();
  }

  void rescale(double prescale, double postscale) override {
    // The ranks of a node give the mean to Adasum.
    pack_scale_ = collective_.verb == Verb::adasum ? prescale / team_.rails : prescale;
    if (std::exchange(postscale_, postscale) == postscale) return;
    if (rail_on_device_ != nullptr) rail_on_device_->rescale(1.0, postscale);
    for (auto& rail : rails_)
      if (rail != nullptr) rail->rescale(1.0, postscale);
  }

  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence sequence) override {
    in_.assign(in, collective_.dtype);
    out_.assign(out, collective_.dtype);
    if (in_.count() != out_.count())
      panic(std::string(name_of(collective_.verb)) + ": expected " + std::to_string(in_.count()) +
            " elements of output, found " + std::to_string(out_.count()));
    cut_.restart(in, share_of_batch(in_.count()));
    sequence_ = sequence;
    packed_ = place_ = scattered_ = set_off_ = returned_ = gathered_ = 0;
    on_link_ = nullptr;
    is_ready_ = false;
    if (failure_) return;
    const auto share = static_cast<std::size_t>(cut_.longest_share()) * size_of(collective_.dtype);
    if (auto reserved = slots_->reserve(std::max<std::size_t>(share, most_share_bytes), is_over_host_); !reserved)
      return refuse(reserved.error());
    auto ready = device_.record(collective_.stream);
    if (ready) ready_ = *ready;
    else refuse(ready.error());
    stages_.clear();
    if (chunks() > 0) stages_.add(What::waits, 0, stages_.now(), ready_);
  }

  Progress step() override {
    if (!failure_ && !is_ready_ && chunks() > 0) {
      is_ready_ = is_there(ready_);
      if (!failure_ && !is_ready_) return Progress::pending;
    }
    while (goes_on()) {
    }
    if (failure_) return Progress::failed;
    if (gathered_ < chunks()) return Progress::pending;
    return chunks() == 0 ? Progress::done : Progress::issued;
  }

  Event event() const override { return gathered_ == chunks() ? end_ : awaited(); }
  const Error& failure() const override { return *failure_; }
  void note_stages(bool wanted) override { stages_.want(wanted); }
  std::span<const StageOnDevice> stages() const override { return stages_.list(); }
  bool has_launched() const override { return !has_node_ && is_over_host_ ? true : gathered_ == chunks(); }
  Seat waiting_for() const override {
    if (!is_over_host_ || returned_ == set_off_) return Seat{-1};
    const Seat seat = rails_[index_of(returned_)]->waiting_for();
    return seat.value < 0 ? seat : team_.group.seat_of(rail_.group.rank_at(seat));
  }

 private:
  enum class OnLink : std::uint8_t { scatter, rail, gather };
  using What = StageOnDevice::What;

  std::int64_t share_of_batch(std::int64_t elements) const {
    if (share_ > 0) return share_;
    const auto& measured = slots_->costs(is_over_host_);
    return best_share(collective_, team_, elements, measured ? &*measured : nullptr);
  }
  std::int64_t chunks() const { return cut_.chunks(); }
  static std::size_t index_of(std::int64_t chunk) { return static_cast<std::size_t>(chunk) % Slots::way_count; }

  // ---- plans --------------------------------------------------------------------------------------------------------

  std::unique_ptr<Task> plan_on(Team& team, Verb verb, std::int64_t count) const {
    Collective stage = stage_of(collective_, verb, verb == Verb::allreduce ? Scales::after : Scales::none, count);
    stage.stream = verb == Verb::allreduce ? slots_->rail() : slots_->node();
    return team.link->native()->plan(stage);
  }
  std::unique_ptr<Task> plan_rail(std::int64_t count) const {
    Collective stage = stage_of(collective_, collective_.verb, Scales::after, count);
    stage.device = DeviceKind::host;
    stage.stream = {};
    if (stage.verb == Verb::adasum && has_node_) return make_adasum_task(stage, rail_, team_.host->node);
    // The choice cannot fail: is_possible_on_device().
    return rail_.selector->choose(stage, rail_).value()->plan(stage, rail_);
  }

  // ---- streams ------------------------------------------------------------------------------------------------------

  void refuse(const Error& error) {
    if (!failure_)
      failure_ = Error(error.code, "rank " + std::to_string(rank_.value) + " cannot carry out " +
                                       name_of(collective_.verb) + " in stages on its device: " + error.message);
  }
  bool is_there(Event event) {
    auto there = device_.query(event, nullptr);
    if (!there) refuse(there.error());
    return there && *there;
  }
  void stage_wait(Stream stream, Event event) {
    if (failure_ || event.token == 0) return;
    if (auto waits = device_.wait(stream, event); !waits) refuse(waits.error());
  }
  Event mark(Stream stream) {
    if (failure_) return {};
    auto event = device_.record(stream);
    if (!event) refuse(event.error());
    return event ? *event : Event{};
  }
  void move(Stream stream, std::span<const Move> moves, double scale) {
    if (failure_ || moves.empty()) return;
    const Treatment treatment{collective_.dtype, collective_.dtype, scale};
    if (auto moved = device_.move(stream, moves, treatment); !moved) refuse(moved.error());
  }
  // The event for which the host waits, if it waits for the device.
  Event awaited() const {
    if (gathered_ == chunks()) return {};
    if (!is_ready_) return ready_;
    return is_over_host_ && set_off_ < scattered_ ? slots_->way(set_off_).copied : Event{};
  }

  // Does what can be done now. Returns true if there was something.
  bool goes_on() {
    if (failure_) return false;
    bool has_moved = pack();
    has_moved |= launch();
    has_moved |= set_off();
    has_moved |= come_back();
    return has_moved && !failure_;
  }

  // ---- 1 and 5: pack and unpack -------------------------------------------------------------------------------------

  bool pack() {
    const std::int64_t ahead = has_node_ ? scattered_ + static_cast<std::int64_t>(Slots::packed_count)
                                         : gathered_ + static_cast<std::int64_t>(Slots::way_count);
    if (failure_ || packed_ == chunks() || packed_ >= ahead) return false;
    Slots::Packed& to = slots_->packed(packed_);
    Slots::Way& way = slots_->way(packed_);
    const auto since = stages_.now();
    stage_wait(slots_->pack(), has_node_ ? to.free : way.free);
    list_packing(packed_, has_node_ ? to.memory.data() : way.share.data());
    move(slots_->pack(), moves_, pack_scale_);
    to.filled = mark(slots_->pack());
    stages_.add(What::packs, packed_, since, to.filled);
    ++packed_;
    return true;
  }
  void unpack(const std::byte* from) {
    const auto since = stages_.now();
    list_unpacking(gathered_, from);
    move(slots_->unpack(), moves_, 1.0);
    end_ = mark(slots_->unpack());
    stages_.add(What::unpacks, gathered_, since, end_);
  }

  // Lists the moves from the tensors: share by share, in it piece by piece.
  void list_packing(std::int64_t chunk, std::byte* to) {
    moves_.clear();
    visit_parts(chunk, [&](std::int64_t begin, std::int64_t count, std::int64_t padding, std::int64_t place) {
      std::byte* at = to + bytes(place);
      in_.visit(begin, count, [&](const std::byte* data, std::int64_t part) {
        moves_.push_back({data, at, part});
        at += bytes(part);
      });
      if (padding > 0) moves_.push_back({nullptr, at, padding});
    });
  }
  void list_unpacking(std::int64_t chunk, const std::byte* from) {
    moves_.clear();
    visit_parts(chunk, [&](std::int64_t begin, std::int64_t count, std::int64_t, std::int64_t place) {
      const std::byte* at = from + bytes(place);
      out_.visit(begin, count, [&](std::byte* data, std::int64_t part) {
        if (data != nullptr) moves_.push_back({at, data, part});
        at += bytes(part);
      });
    });
  }
  template <typename Visit>
  void visit_parts(std::int64_t chunk, Visit visit) const {
    for (int share = 0; share < team_.rails; ++share)
      for (const PieceOfChunk& piece : cut_.pieces(chunk)) {
        const std::int64_t first = std::min(share * piece.share, piece.count);
        const std::int64_t count = std::min(piece.share, piece.count - first);
        visit(piece.begin + first, count, piece.share - count, share * cut_.share(chunk) + piece.place);
      }
  }
  std::size_t bytes(std::int64_t elements) const {
    return static_cast<std::size_t>(elements) * size_of(collective_.dtype);
  }
  Segment segment(std::byte* data, std::int64_t count) const { return {TensorView{data, count, collective_.dtype}}; }

  // ---- 2 and 4: the links of the device, in one order ---------------------------------------------------------------

  // The work at this place of the order, and its chunk.
  std::pair<OnLink, std::int64_t> at(std::int64_t place) const {
    const std::int64_t first = std::min(chunks(), static_cast<std::int64_t>(Slots::way_count));
    if (place < first) return {OnLink::scatter, place};
    const std::int64_t turn = place - first, takeovers = chunks() - first;
    if (turn >= 2 * takeovers) return {OnLink::gather, turn - takeovers};
    if (turn % 2 == 0) return {OnLink::gather, turn / 2};
    return {OnLink::scatter, first + turn / 2};
  }

  bool launch() {
    if (failure_) return false;
    if (on_link_ == nullptr) {
      if (place_ == 2 * chunks()) return false;
      const auto [what, chunk] = at(place_);
      if (what == OnLink::scatter ? chunk == packed_ : chunk == returned_) return false;
      ++place_;
      return what == OnLink::scatter ? scatter(chunk) : gather(chunk);
    }
    return step_link();
  }

  bool scatter(std::int64_t chunk) {
    Slots::Packed& packed = slots_->packed(chunk);
    if (!has_node_) return scattered(packed.filled);
    stage_wait(slots_->node(), packed.filled);
    std::byte* share = slots_->way(chunk).share.data();
    return start(*scatter_, OnLink::scatter, segment(packed.memory.data(), cut_.share(chunk) * team_.rails),
                 segment(share, cut_.share(chunk)));
  }
  bool scattered(Event end) {
    Slots::Way& way = slots_->way(scattered_);
    if (has_node_) slots_->packed(scattered_).free = end;
    if (has_node_) note_travel(*team_.node, Verb::reduce_scatter, scattered_, end);
    stage_wait(slots_->rail(), end);
    const std::int64_t count = cut_.share(scattered_);
    if (!is_over_host_)
      return start(*rail_on_device_, OnLink::rail, segment(way.share.data(), count), segment(way.share.data(), count));
    const auto since = stages_.now();
    copy(slots_->rail(), way.on_host.data(), way.share.data(), count);
    way.copied = mark(slots_->rail());
    stages_.add(What::to_host, scattered_, since, way.copied);
    ++scattered_;
    return true;
  }
  bool reduced_on_device(Event end) {
    note_travel(rail_, Verb::allreduce, scattered_, end);
    slots_->way(scattered_++).returned = end;
    ++set_off_;
    ++returned_;
    return true;
  }
  bool gather(std::int64_t chunk) {
    Slots::Way& way = slots_->way(chunk);
    Slots::Packed& unpacked = slots_->unpacked(chunk);
    if (!has_node_) return gathered(way.returned);
    stage_wait(slots_->node(), way.returned);
    stage_wait(slots_->node(), unpacked.free);
    const std::int64_t count = cut_.share(chunk);
    return start(*gather_, OnLink::gather, segment(way.share.data(), count),
                 segment(unpacked.memory.data(), count * team_.rails));
  }
  bool gathered(Event end) {
    Slots::Packed& unpacked = slots_->unpacked(gathered_);
    Slots::Way& way = slots_->way(gathered_);
    if (has_node_) note_travel(*team_.node, Verb::allgather, gathered_, end);
    stage_wait(slots_->unpack(), end);
    unpack(has_node_ ? unpacked.memory.data() : way.share.data());
    (has_node_ ? unpacked.free : way.free) = end_;
    ++gathered_;
    return true;
  }

  bool start(Task& task, OnLink what, const Segment& from, const Segment& to) {
    if (failure_) return false;
    on_link_ = &task;
    on_link_since_ = stages_.now();
    what_ = what;
    // A place for each launch, and for a rail of its own between a scatter and what comes next.
    task.restart({&from, 1}, {&to, 1}, Sequence{sequence_.value + static_cast<std::uint64_t>(place_)});
    return step_link();
  }
  bool step_link() {
    const Progress progress = on_link_->step();
    if (progress == Progress::pending) return false;
    if (progress == Progress::failed) return refuse_for(*on_link_);
    const Event end = progress == Progress::issued ? on_link_->event() : Event{};
    on_link_ = nullptr;
    switch (what_) {
      case OnLink::scatter: return scattered(end);
      case OnLink::rail: return reduced_on_device(end);
      case OnLink::gather: return gathered(end);
    }
    return true;
  }
  void note_travel(const Team& team, Verb verb, std::int64_t chunk, Event end) {
    if (end.token != 0) stages_.add_travel(team.transport, verb, chunk, on_link_since_, end);
  }
  bool refuse_for(const Task& task) {
    if (!failure_) failure_ = task.failure();
    return false;
  }

  // ---- 3: along the rail --------------------------------------------------------------------------------------------

  bool set_off() {
    if (failure_ || !is_over_host_ || set_off_ == scattered_) return false;
    Slots::Way& way = slots_->way(set_off_);
    if (!is_there(way.copied)) return false;
    on_host_.clear();
    for (const PieceOfChunk& piece : cut_.pieces(set_off_))
      on_host_.push_back(segment(way.on_host.data() + bytes(piece.place), piece.share));
    rails_[index_of(set_off_)]->restart(on_host_, on_host_, sequence_of_place(sequence_, set_off_));
    is_reduced_[index_of(set_off_)] = false;
    set_off_at_[index_of(set_off_)] = stages_.now();
    ++set_off_;
    return true;
  }
  // Several chunks may be on the rail. They come back in their order.
  bool come_back() {
    if (failure_ || !is_over_host_) return false;
    for (std::int64_t chunk = returned_; chunk < set_off_; ++chunk) {
      bool& is_reduced = is_reduced_[index_of(chunk)];
      if (is_reduced) continue;
      const Progress progress = rails_[index_of(chunk)]->step();
      if (progress == Progress::failed) return refuse_for(*rails_[index_of(chunk)]);
      is_reduced = progress == Progress::done;
      if (is_reduced) stages_.add_travel(rail_.transport, collective_.verb, chunk, set_off_at_[index_of(chunk)]);
    }
    if (returned_ == set_off_ || !is_reduced_[index_of(returned_)]) return false;
    Slots::Way& way = slots_->way(returned_);
    const auto since = stages_.now();
    copy(slots_->back(), way.share.data(), way.on_host.data(), cut_.share(returned_));
    way.returned = mark(slots_->back());
    stages_.add(What::from_host, returned_, since, way.returned);
    ++returned_;
    return true;
  }
  void copy(Stream stream, std::byte* to, const std::byte* from, std::int64_t count) {
    const Move whole{from, to, count};
    move(stream, {&whole, 1}, 1.0);
  }

  Collective collective_;
  Team& team_;
  Device& device_;
  const Rank rank_;
  Team& rail_;
  const bool is_over_host_;   // the rail is a host link
  const bool has_node_;       // there are other ranks on this node
  const std::int64_t share_;  // 0: the best
  double pack_scale_ = 1.0, postscale_ = 1.0;
  CutOfBatch cut_;
  const std::shared_ptr<Slots> slots_;
  std::unique_ptr<Task> scatter_, gather_, rail_on_device_;
  std::array<std::unique_ptr<Task>, Slots::way_count> rails_;  // one for each chunk that is under way on a host link
  std::array<bool, Slots::way_count> is_reduced_{};
  std::array<Clock::time_point, Slots::way_count> set_off_at_{};  // if stages are noted

  SegmentArray in_, out_;
  Sequence sequence_;
  bool is_ready_ = false;  // the tensors are
  Event ready_, end_;
  // How many chunks have been packed, scattered (and copied out), have set off on the rail, have been copied back, have
  // been gathered (and unpacked). Their work may still be in a queue.
  std::int64_t packed_ = 0, scattered_ = 0, set_off_ = 0, returned_ = 0, gathered_ = 0;
  std::int64_t place_ = 0;   // how much has been launched on links of the device
  Task* on_link_ = nullptr;  // what is being launched
  OnLink what_ = OnLink::scatter;
  Clock::time_point on_link_since_{};
  NotedStages stages_;
  std::vector<Move> moves_;
  std::vector<Segment> on_host_;
  std::optional<Error> failure_;
};

}  // namespace

std::unique_ptr<Task> plan_on_device(const Collective& collective, Team& team, std::int64_t share) {
  auto task = std::make_unique<OnDevice>(collective, team, share);
  if (share > 0 || !team.clock) return task;
  return std::make_unique<MeasuredTask>(std::move(task), collective, team);
}

}  // namespace hvd::collectives::hierarchical
