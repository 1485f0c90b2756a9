#include "runtime/agreement/coordinator.hpp"

#include <algorithm>
#include <utility>

namespace hvd::runtime {

Coordinator::Coordinator(Settings settings, const ProcessSets& sets, Emit emit)
    : settings_(settings), sets_(sets), emit_(std::move(emit)), slots_(static_cast<std::size_t>(settings_.slots)) {
  for (int slot = settings_.slots - 1; slot >= 0; --slot) free_.push_back(SlotId{slot});
  // These containers get their full size now, so that nothing grows in steady state.
  ready_in({global_process_set, DeviceKind::host}).slots.reserve(slots_.size());
  batch_.reserve(slots_.size());
}

void Coordinator::emit(const Record& record) {
  ++emitted_;
  emit_(record);
}

Coordinator::Ready& Coordinator::ready_in(LaneKey lane) {
  Ready& ready = ready_[lane];
  ready.lane = lane;
  return ready;
}

void Coordinator::contest(OpNameView name) {
  if (shut_down_) return;
  auto found = slot_of_.find(name);
  if (found == slot_of_.end()) return;
  SlotId slot = found->second;
  // A rank that has joined may send a ballot for an op that the others have already agreed on. That op is scheduled
  // first.
  if (at(slot).state == SlotState::ready) take_all(*at(slot).ready);
  evict(slot);
}

void Coordinator::agreed(OpNameView name, const Signature& signature) {
  if (shut_down_ || refuse_for_joined(name, signature)) return;
  if (signature.verb == Verb::add_set) return add_set(name, signature);
  if (signature.verb == Verb::remove_set) return remove_set(name, signature);
  if (!starved_.empty() || !give(name, signature)) starved_.emplace_back(OpName(name), signature);
}

void Coordinator::disagreed(OpNameView name, std::string_view message) {
  if (!shut_down_) emit(FailRecord{name, ErrorCode::mismatch, message});
}

void Coordinator::add_set(OpNameView name, const Signature& signature) {
  const std::vector<Rank> ranks = ranks_in(signature.shape);
  if (const ProcessSet* known = sets_.of(ranks))
    emit(FailRecord{name, ErrorCode::invalid_argument, "these ranks are " + describe(*known) + " already"});
  else emit(AddSetRecord{ranks});
}

void Coordinator::remove_set(OpNameView name, const Signature& signature) {
  auto number = static_cast<int>(signature.shape.empty() ? -1 : signature.shape.front());
  const ProcessSet* set = sets_.numbered(number);
  if (set == nullptr || set->id == global_process_set) {
    std::string text = "there is no process set " + std::to_string(number) + " that could be removed";
    return emit(FailRecord{name, ErrorCode::invalid_argument, text});
  }
  ProcessSetId id = set->id;
  for (auto& [lane, ready] : ready_)
    if (lane.first == id) take_all(ready);
  evict_all_of(id);
  std::erase_if(starved_, [id](const auto& it) { return it.first.set == id; });
  std::erase_if(ready_, [id](const auto& it) { return it.first.first == id; });
  emit(RemoveSetRecord{id});
}

// Refuses the op if a rank has joined and zeros cannot replace its data. Returns true if the op was refused.
bool Coordinator::refuse_for_joined(OpNameView name, const Signature& signature) {
  bool is_refused =
      name.set == global_process_set && !joined_.empty() && signature.row().joined == VerbRow::Joined::refused;
  if (!is_refused) return false;
  std::string text = std::string(name_of(signature.verb)) + " '" + std::string(name.name) +
                     "' cannot be carried out, since rank " + std::to_string(joined_.front().value) +
                     " has joined (hvd.join) and has nothing to contribute to it; only allreduce, Adasum and barrier "
                     "go on without a rank";
  emit(FailRecord{name, ErrorCode::mismatch, text});
  return true;
}

// Gives the name a slot and makes the op ready. Returns false if no slot is free.
bool Coordinator::give(OpNameView name, const Signature& signature) {
  if (free_.empty()) return false;
  SlotId slot = free_.back();
  free_.pop_back();
  Slot& it = at(slot);
  it.name = OpName(name);
  it.signature = signature;
  it.ready = &ready_in({name.set, signature.device});
  it.bytes = signature.count() * static_cast<std::int64_t>(size_of(signature.dtype));
  bool cached = !signature.transient && settings_.cache_capacity > 0;
  it.signature.transient = !cached;
  if (cached) {
    it.recent = scheduled_next_.insert(scheduled_next_.end(), slot);
    slot_of_.emplace(it.name, slot);
  }
  emit(GiveRecord{slot, it.name, it.signature});
  make_ready(slot);
  if (cached) shrink_cache();
  return true;
}

void Coordinator::make_ready(SlotId slot) {
  Slot& it = at(slot);
  it.state = SlotState::ready;
  it.ready->slots.push_back(slot);
  it.ready->bytes += it.bytes;
}

void Coordinator::all_arrived(SlotId slot) {
  Slot& it = at(slot);
  if (it.state != SlotState::live || shut_down_) return;
  if (!joined_.empty() && refuse_for_joined(it.name, it.signature)) return evict(slot);
  scheduled_next_.splice(scheduled_next_.end(), recently_used_, it.recent);
  make_ready(slot);
}

void Coordinator::evict(SlotId slot) {
  Slot& it = at(slot);
  // A ready op has been agreed by all and will be scheduled. Nobody can submit it again before, so it cannot be
  // evicted.
  if (it.state == SlotState::ready) panic("slot of '" + it.name.name + "' evicted while ready");
  recently_used_.erase(it.recent);
  slot_of_.erase(it.name);
  emit(EvictRecord{slot});
  end(slot);
}

void Coordinator::evict_all_of(ProcessSetId set) {
  std::vector<SlotId> slots;
  for (const auto& [name, slot] : slot_of_)
    if (name.set == set) slots.push_back(slot);
  for (SlotId slot : slots) evict(slot);
}

void Coordinator::end(SlotId slot) {
  at(slot).state = SlotState::ended;
  ended_.push_back({slot, emitted_});
}

// Removes ops from the cache while it exceeds its capacity. Ready ops keep their slots until they are scheduled, so the
// cache may stay too large for a while.
void Coordinator::shrink_cache() {
  while (!recently_used_.empty() && over_capacity()) evict(recently_used_.front());
}

void Coordinator::read_by_all(std::uint64_t records) {
  while (!ended_.empty() && ended_.front().records <= records) {
    at(ended_.front().slot).state = SlotState::free;
    free_.push_back(ended_.front().slot);
    ended_.pop_front();
  }
  if (!starved_.empty()) shrink_cache();
  while (!starved_.empty() && give(starved_.front().first, starved_.front().second)) starved_.pop_front();
}

void Coordinator::join(Rank rank, bool is_idle) {
  if (shut_down_) return;
  auto has = [rank](const std::vector<Rank>& ranks) { return std::ranges::find(ranks, rank) != ranks.end(); };
  if (is_idle && !has(idle_)) idle_.push_back(rank);
  if (has(joined_)) return;
  joined_.push_back(rank);
  emit(JoinRecord{rank});
}

void Coordinator::end_joins() {
  if (shut_down_ || idle_.size() < sets_.world().ranks.size()) return;
  schedule_all();
  evict_all_of(global_process_set);
  Rank last = joined_.back();
  joined_.clear();
  idle_.clear();
  emit(AllJoinedRecord{last});
}

void Coordinator::shut_down(Rank by, std::string_view reason, std::string_view id) {
  if (shut_down_) return;
  schedule_all();
  shut_down_ = true;
  emit(ShutdownRecord{by, reason, id});
}

void Coordinator::set_stop_point(Rank by, StopCause cause, std::string_view reason) {
  if (shut_down_ || has_stop_point_) return;
  has_stop_point_ = true;
  emit(StopPointRecord{by, cause, reason});
}

void Coordinator::publish(Rank by, ProcessSetId set, std::string_view key, ConstBytes value) {
  emit(PublishedRecord{by, set, key, value});
}

void Coordinator::schedule(int batches_in_flight) {
  schedule([batches_in_flight](ProcessSetId, DeviceKind) { return batches_in_flight; });
}

void Coordinator::schedule(const BatchesInFlight& batches_in_flight) {
  if (shut_down_) return;
  linger_due_.reset();
  for (auto& [lane, ready] : ready_)
    if (!ready.slots.empty() && !lingers(ready, batches_in_flight)) take_all(ready);
}

void Coordinator::schedule_all() {
  if (shut_down_) return;
  linger_due_.reset();
  for (auto& [lane, ready] : ready_) take_all(ready);
}

// True if the ops wait for others to travel in one batch with them. For a device linger_due_ is then set. A batch that
// would be the third in flight could not begin yet, so it loses no time by lingering.
bool Coordinator::lingers(Ready& ready, const BatchesInFlight& batches_in_flight) {
  const auto [set, kind] = ready.lane;
  if (ready.bytes >= threshold_of(kind)) return false;
  const int in_flight = batches_in_flight(set, kind).value_or(ready.elsewhere);
  if (kind == DeviceKind::host) return in_flight > 0;
  if (program_waits_ && in_flight < 2) return false;
  if (in_flight == 0 && ready.bytes >= settings_.enough_for_an_idle_device) return false;
  const Clock::time_point now = settings_.now();
  if (!ready.since) ready.since = now;
  const bool is_short = program_waits_ || in_flight == 0;
  const Clock::time_point due =
      *ready.since + (is_short ? std::min(settings_.linger, settings_.short_linger) : settings_.linger);
  if (now >= due) return false;
  linger_due_ = linger_due_ ? std::min(*linger_due_, due) : due;
  return true;
}

// True if the root is a member. Then it counts the set's batches itself, and nobody reports their end.
bool Coordinator::is_in(ProcessSetId set) const {
  const ProcessSet* found = sets_.find(set);
  return found != nullptr && std::ranges::binary_search(found->ranks, Rank{0});
}

void Coordinator::batch_ended(ProcessSetId set, DeviceKind kind) {
  auto ready = ready_.find({set, kind});
  if (ready != ready_.end() && ready->second.elsewhere > 0) --ready->second.elsewhere;
}

void Coordinator::take_all(Ready& ready) {
  while (!ready.slots.empty()) take_batch(ready);
  ready.since.reset();
}

bool Coordinator::may_share(const Signature& first, const Signature& other) const {
  if (!first.fuses_with(other)) return false;
  return !settings_.groups_do_not_mix || (first.group != 0 && first.group == other.group);
}

// Takes the first ready op and all ops that fuse with it, up to the threshold. The other ops keep their order.
void Coordinator::take_batch(Ready& ready) {
  const auto [set, kind_of_memory] = ready.lane;
  batch_.clear();
  const Signature& kind = at(ready.slots.front()).signature;
  std::int64_t bytes = 0;
  std::size_t kept = 0, looked_at = kind.row().fuses() ? ready.slots.size() : 1;
  for (std::size_t i = 0; i < looked_at; ++i) {
    SlotId slot = ready.slots[i];
    Slot& it = at(slot);
    bool fits = i == 0 || (may_share(kind, it.signature) && bytes + it.bytes <= threshold_of(kind_of_memory));
    if (!fits) {
      ready.slots[kept++] = slot;
      continue;
    }
    bytes += it.bytes;
    batch_.push_back(slot);
  }
  ready.slots.erase(ready.slots.begin() + static_cast<std::ptrdiff_t>(kept),
                    ready.slots.begin() + static_cast<std::ptrdiff_t>(looked_at));
  ready.bytes -= bytes;
  emit(BatchRecord{Sequence{sequence_++}, set, batch_});
  if (kind_of_memory != DeviceKind::host && !is_in(set)) ++ready.elsewhere;
  for (SlotId slot : batch_) {
    Slot& it = at(slot);
    if (it.signature.transient) {
      end(slot);
    } else {
      it.state = SlotState::live;
      recently_used_.splice(recently_used_.end(), scheduled_next_, it.recent);
    }
  }
}

void Coordinator::visit_slots(const std::function<void(SlotId, const OpName&)>& visit) const {
  for (const auto& [name, slot] : slot_of_) visit(slot, name);
}

}  // namespace hvd::runtime
