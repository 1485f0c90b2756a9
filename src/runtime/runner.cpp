#include "runtime/runner.hpp"

#include <algorithm>

namespace hvd::runtime {

void Runner::add(const ProcessSet& set) {
  sets_[set.id] = set;
  (void)lane_of(set, DeviceKind::host);
}

Lane& Runner::lane_of(const ProcessSet& set, DeviceKind kind) {
  std::unique_ptr<Lane>& place = lanes_[{set.id, kind}];
  if (place) return *place;
  Lane::Parts lane;
  lane.teams = std::make_unique<Teams>(*parts_.teams, set, kind, parts_.send);
  lane.world = parts_.world;
  lane.counters = parts_.counters;
  lane.observers = parts_.observers;
  lane.finished = parts_.finished;
  if (kind != DeviceKind::host) lane.turnstile = &turnstiles_[kind];
  // The root has to know whether the lane is busy, also if it is not a member.
  const bool reports = kind != DeviceKind::host && !std::ranges::binary_search(set.ranks, Rank{0}) &&
                       parts_.world->rank == set.ranks.front();
  if (reports) lane.report_end = [send = parts_.send, id = set.id, kind] { send(BatchEndedRequest{id, kind}); };
  place = std::make_unique<Lane>(std::move(lane));
  return *place;
}

void Runner::remove(ProcessSetId set) {
  if (sets_.erase(set) == 0) return;
  for (auto& [key, lane] : lanes_)
    if (key.first == set) lane->close();
  has_closed_ = true;
}

std::vector<Operation*>& Runner::queue(ProcessSetId set, DeviceKind kind, Sequence sequence) {
  auto found = lanes_.find({set, kind});
  return (found == lanes_.end() ? lane_of(sets_.at(set), kind) : *found->second).queue(sequence);
}

void Runner::published(const PublishedRecord& record) {
  for (auto& [key, lane] : lanes_)
    if (key.first == record.set) lane->teams().published(record);
}

std::optional<int> Runner::batches_in_flight(ProcessSetId set, DeviceKind kind) const {
  if (!has(set)) return std::nullopt;
  auto found = lanes_.find({set, kind});
  return found == lanes_.end() ? 0 : found->second->batches_in_flight();
}

bool Runner::is_idle() const {
  for (const auto& [key, lane] : lanes_)
    if (!lane->is_idle()) return false;
  return true;
}

bool Runner::step() {
  bool news = false;
  for (auto& [key, lane] : lanes_) news |= lane->step();
  if (has_closed_) {
    std::erase_if(lanes_, [](const auto& it) { return it.second->is_over(); });
    has_closed_ = false;
    for (const auto& [key, lane] : lanes_) has_closed_ |= lane->is_closed();
  }
  return news;
}

const Error* Runner::failure() const {
  for (const auto& [key, lane] : lanes_)
    if (const Error* failure = lane->failure()) return failure;
  return nullptr;
}

void Runner::abandon() {
  for (auto& [key, lane] : lanes_) lane->abandon();
}

Rank Runner::waiting_for(const Operation& operation) const {
  for (const auto& [key, lane] : lanes_)
    if (Rank rank = lane->waiting_for(operation); rank.value >= 0) return rank;
  return Rank{-1};
}

void Runner::arm(bool for_all) noexcept {
  for (auto& [key, lane] : lanes_) lane->arm(for_all);
}

bool Runner::needs_polling() noexcept {
  bool any = false;
  for (auto& [key, lane] : lanes_) any |= lane->teams().needs_polling();
  return any;
}

bool Runner::progresses_only_when_polled() noexcept {
  for (auto& [key, lane] : lanes_)
    if (lane->teams().progresses_only_when_polled()) return true;
  return false;
}

void Runner::abort(const Error& reason) noexcept {
  for (auto& [key, lane] : lanes_) lane->teams().abort(reason);
}

}  // namespace hvd::runtime
