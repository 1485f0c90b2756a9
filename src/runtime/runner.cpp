#include "runtime/runner.hpp"

namespace hvd::runtime {

void Runner::add(const ProcessSet& set) {
  Lane::Parts lane;
  lane.teams = std::make_unique<Teams>(*parts_.teams, set);
  lane.exchange = std::make_unique<LogExchange>(set.id, parts_.send);
  lane.world = parts_.world;
  lane.counters = parts_.counters;
  lane.observers = parts_.observers;
  lane.finished = parts_.finished;
  lanes_[set.id] = std::make_unique<Lane>(std::move(lane));
}

void Runner::remove(ProcessSetId set) {
  if (Lane* lane = find(set)) {
    lane->close();
    has_closed_ = true;
  }
}

Lane* Runner::find(ProcessSetId set) {
  auto found = lanes_.find(set);
  return found == lanes_.end() ? nullptr : found->second.get();
}

int Runner::batches_in_flight(ProcessSetId set) const {
  auto found = lanes_.find(set);
  return found == lanes_.end() ? 0 : found->second->batches_in_flight();
}

int Runner::batches_in_flight() const {
  int all = 0;
  for (const auto& [set, lane] : lanes_) all += lane->batches_in_flight();
  return all;
}

bool Runner::step() {
  bool news = false;
  for (auto& [set, lane] : lanes_) news |= lane->step();
  if (has_closed_) {
    std::erase_if(lanes_, [](const auto& it) { return it.second->is_over(); });
    has_closed_ = false;
    for (const auto& [set, lane] : lanes_) has_closed_ |= lane->is_closed();
  }
  return news;
}

const Error* Runner::failure() const {
  for (const auto& [set, lane] : lanes_)
    if (const Error* failure = lane->failure()) return failure;
  return nullptr;
}

void Runner::abandon() {
  for (auto& [set, lane] : lanes_) lane->abandon();
}

Rank Runner::waiting_for(const Operation& operation) const {
  for (const auto& [set, lane] : lanes_)
    if (Rank rank = lane->waiting_for(operation); rank.value >= 0) return rank;
  return Rank{-1};
}

void Runner::arm() noexcept {
  for (auto& [set, lane] : lanes_) lane->teams().arm();
}

bool Runner::needs_polling() noexcept {
  bool any = false;
  for (auto& [set, lane] : lanes_) any |= lane->teams().needs_polling();
  return any;
}

bool Runner::progresses_only_when_polled() noexcept {
  for (auto& [set, lane] : lanes_)
    if (lane->teams().progresses_only_when_polled()) return true;
  return false;
}

void Runner::abort(const Error& reason) noexcept {
  for (auto& [set, lane] : lanes_) lane->teams().abort(reason);
}

}  // namespace hvd::runtime
