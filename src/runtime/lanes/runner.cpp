#include "runtime/lanes/runner.hpp"

#include <algorithm>
#include <functional>
#include <iterator>

#include "runtime/lanes/last_calls.hpp"

namespace hvd::runtime {

void Runner::add(const ProcessSet& set) {
  sets_[set.id] = set;
  (void)lane_of(set, DeviceKind::host);
}

Lane& Runner::lane_of(const ProcessSet& set, DeviceKind kind) {
  std::unique_ptr<Lane>& place = lanes_[{set.id, kind}];
  if (place) return *place;
  auto device = teams_.devices().open_for_zeros(kind);
  // Of the host's lane nothing is used but its error.
  devices::Device& used = device ? **device : *teams_.devices().find(DeviceKind::host);
  Turnstile* turnstile = kind == DeviceKind::host ? nullptr : &turnstiles_[kind];
  // The root has to know whether the lane is busy, also if it is not a member.
  const bool reports = kind != DeviceKind::host && !std::ranges::binary_search(set.ranks, Rank{0}) &&
                       rank_.world.rank == set.ranks.front();
  std::function<void()> report_end;
  if (reports) report_end = [this, id = set.id, kind] { send_(BatchEndedRequest{id, kind}); };
  place = std::make_unique<Lane>(rank_, std::make_unique<Teams>(teams_, set, used, send_), finished_, turnstile,
                                 std::move(report_end));
  if (!device)
    place->fail({ErrorCode::system, "a rank that has joined has to take part with its " + std::string(name_of(kind)) +
                                        " device, which cannot be opened: " + device.error().message});
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

std::optional<Runner::OldestIssued> Runner::oldest_issued() const {
  std::optional<OldestIssued> oldest;
  const Lane* lane_of_oldest = nullptr;
  for (const auto& [key, lane] : lanes_) {
    auto issued = lane->oldest_issued();
    if (!issued || (oldest && oldest->batch.since <= issued->since)) continue;
    oldest = {*issued, false};
    lane_of_oldest = lane.get();
  }
  if (oldest) oldest->is_held_up_by_program = lane_of_oldest->is_held_up_by_program();
  return oldest;
}

std::vector<EndOnDevice> Runner::unended() const {
  std::vector<EndOnDevice> ends;
  for (const auto& [key, lane] : lanes_) lane->add_unended(ends);
  return ends;
}

std::string Runner::end(const Error& reason, Deadline deadline) {
  // The thread may outlive this call.
  auto shared_reason = std::make_shared<const Error>(reason);
  std::vector<std::function<void()>> aborts, rest;
  std::string devices;
  for (auto& [key, lane] : lanes_) lane->teams().abort_links_of_host(reason);
  for (auto& [key, lane] : lanes_) {
    if (key.second == DeviceKind::host) {
      lane->abandon();
      continue;
    }
    aborts.emplace_back([raw = lane.get(), shared_reason] { raw->teams().abort_links_of_devices(*shared_reason); });
    rest.emplace_back([raw = lane.get()] { raw->abandon(); });
    const std::string name = describe(lane->device());
    if (devices.find(name) == std::string::npos) devices += (devices.empty() ? "" : ", ") + name;
  }
  std::ranges::move(rest, std::back_inserter(aborts));
  if (make_last_calls(std::move(aborts), deadline)) {
    for (auto& [key, lane] : lanes_) lane->report_rest();
    return "";
  }
  return devices +
         " did not let go of this rank's links and tensors in time: its library hangs, or work of the program "
         "there does not end. End this process, and do not use what the device has computed since";
}

Rank Runner::waiting_for(const Operation& operation) const {
  for (const auto& [key, lane] : lanes_)
    if (Rank rank = lane->waiting_for(operation); rank.value >= 0) return rank;
  return Rank{-1};
}

void Runner::arm(bool for_all) noexcept {
  for (auto& [key, lane] : lanes_) lane->arm(for_all);
}

std::optional<Clock::time_point> Runner::connect_due() const {
  std::optional<Clock::time_point> first;
  for (const auto& [key, lane] : lanes_)
    if (auto due = lane->connect_due(); due && (!first || *due < *first)) first = due;
  return first;
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

}  // namespace hvd::runtime
