#include "runtime/coordinator.hpp"

#include <utility>

namespace hvd::runtime {

Coordinator::Coordinator(Settings settings, Emit emit)
    : settings_(std::move(settings)), emit_(std::move(emit)), slots_(static_cast<std::size_t>(settings_.slots)) {
  for (int slot = settings_.slots - 1; slot >= 0; --slot) free_.push_back(SlotId{slot});
  // Nothing below grows in steady state.
  ready_.reserve(slots_.size());
  batch_.reserve(slots_.size());
}

void Coordinator::emit(const Record& record) {
  ++emitted_;
  emit_(record);
}

void Coordinator::contest(std::string_view name) {
  if (shut_down_) return;
  if (auto live = slot_of_.find(name); live != slot_of_.end()) evict(live->second);
}

void Coordinator::agreed(const std::string& name, const Signature& signature) {
  if (shut_down_) return;
  if (!starved_.empty() || !give(name, signature)) starved_.emplace_back(name, signature);
}

void Coordinator::disagreed(std::string_view name, std::string_view message) {
  if (!shut_down_) emit(FailRecord{name, message});
}

// The name gets a slot and is ready. False if no slot is free.
bool Coordinator::give(const std::string& name, const Signature& signature) {
  if (free_.empty()) return false;
  SlotId slot = free_.back();
  free_.pop_back();
  Slot& it = at(slot);
  it.state = SlotState::ready;
  it.name = name;
  it.signature = signature;
  it.bytes = signature.count() * static_cast<std::int64_t>(size_of(signature.dtype));
  bool cached = !signature.transient && settings_.cache_capacity > 0;
  it.signature.transient = !cached;
  if (cached) {
    it.recent = recently_used_.insert(recently_used_.end(), slot);
    slot_of_.emplace(name, slot);
  }
  emit(GiveRecord{slot, name});
  ready_.push_back(slot);
  ready_bytes_ += it.bytes;
  if (cached) shrink_cache();
  return true;
}

void Coordinator::all_arrived(SlotId slot) {
  Slot& it = at(slot);
  if (it.state != SlotState::live || shut_down_) return;
  it.state = SlotState::ready;
  recently_used_.splice(recently_used_.end(), recently_used_, it.recent);
  ready_.push_back(slot);
  ready_bytes_ += it.bytes;
}

void Coordinator::evict(SlotId slot) {
  Slot& it = at(slot);
  // An op that is ready has everybody's consent and is scheduled; nobody can have submitted it anew before.
  if (it.state == SlotState::ready) panic("slot of '" + it.name + "' evicted while ready");
  recently_used_.erase(it.recent);
  slot_of_.erase(it.name);
  emit(EvictRecord{slot});
  end(slot);
}

void Coordinator::end(SlotId slot) {
  at(slot).state = SlotState::ended;
  ended_.push_back({slot, emitted_});
}

// Ops that are ready keep their slots; the cache may be over its capacity until they are scheduled.
void Coordinator::shrink_cache() {
  for (auto it = recently_used_.begin(); it != recently_used_.end() && over_capacity();) {
    SlotId slot = *it++;
    if (at(slot).state == SlotState::live) evict(slot);
  }
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

void Coordinator::shut_down(Rank by, std::string_view reason) {
  if (shut_down_) return;
  schedule(0);
  shut_down_ = true;
  emit(ShutdownRecord{by, reason});
}

void Coordinator::publish(Rank by, std::string_view key, ConstBytes value) {
  emit(PublishedRecord{by, key, value});
}

void Coordinator::schedule(int batches_in_flight) {
  if (ready_.empty() || shut_down_) return;
  if (batches_in_flight > 0 && ready_bytes_ < settings_.fusion_threshold_bytes) return;
  while (!ready_.empty()) take_batch();
}

// The first ready op and all that fuse with it, up to the threshold; the others keep their order.
void Coordinator::take_batch() {
  batch_.clear();
  const Signature& kind = at(ready_.front()).signature;
  std::int64_t bytes = 0;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    Slot& it = at(ready_[i]);
    bool fits = i == 0 || (kind.fuses_with(it.signature) && bytes + it.bytes <= settings_.fusion_threshold_bytes);
    if (!fits) {
      ready_[kept++] = ready_[i];
      continue;
    }
    bytes += it.bytes;
    batch_.push_back(ready_[i]);
  }
  ready_.resize(kept);
  ready_bytes_ -= bytes;
  emit(BatchRecord{Sequence{sequence_++}, batch_});
  for (SlotId slot : batch_) {
    if (at(slot).signature.transient) end(slot);
    else at(slot).state = SlotState::live;
  }
}

void Coordinator::visit_slots(const std::function<void(SlotId, const std::string&)>& visit) const {
  for (const auto& [name, slot] : slot_of_) visit(slot, name);
}

}  // namespace hvd::runtime
