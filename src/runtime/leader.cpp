#include "runtime/leader.hpp"

#include "base/log.hpp"
#include "base/overloaded.hpp"
#include "base/panic.hpp"

namespace hvd::runtime {

namespace {

Coordinator::Settings settings_for(const World& world, const Config& config, const transport::NodeBoard& board) {
  Coordinator::Settings settings;
  settings.ranks = world.size();
  settings.slots = board.slots();
  // Some slots always stay free for ops that are not cached.
  settings.cache_capacity = std::min<std::int64_t>(config.cache_capacity, board.slots() / 2 + board.slots() / 4);
  settings.fusion_threshold_bytes = config.fusion_threshold_bytes;
  settings.describe = [&world](Rank rank) { return describe(world, rank); };
  return settings;
}

}  // namespace

Leader::Leader(const World& world, const Config& config, transport::NodeBoard& board,
               const std::vector<Observer*>& observers)
    : world_(world),
      config_(config),
      board_(board),
      observers_(observers),
      coordinator_(settings_for(world, config, board), [this](const Record& record) { append(record); }) {}

bool Leader::step(int batches_in_flight) {
  bool news = append_waiting();
  if (!unlogged_.empty()) return news;  // the log is full; more decisions would only pile up
  // Read before requests and arrivals are: what somebody said who has since read an eviction is still ignored.
  std::uint64_t read_by_all = board_.records_read_by_all();
  Seat from;
  ConstBytes bytes;
  while (board_.take_request(from, bytes)) {
    news = true;
    auto request = decode_request(bytes);
    if (!request) panic(request.error().message);
    hear(Rank{from.value}, *request);
  }
  SlotId slot;
  while (board_.take_completed(slot)) {
    news = true;
    coordinator_.all_arrived(slot);
  }
  coordinator_.read_by_all(read_by_all);
  coordinator_.schedule(batches_in_flight);
  return news;
}

void Leader::hear(Rank from, const Request& request) {
  std::visit(Overloaded{[&](const OpRequest& it) {
                          for (Observer* observer : observers_) observer->ready(it.name, from);
                          coordinator_.ballot(from, it.name, it.signature);
                        },
                        [&](const ShutdownRequest& it) { coordinator_.shut_down(from, it.reason); },
                        [&](const PublishRequest& it) { coordinator_.publish(from, it.key, it.value); },
                        [&](const StallRequest& it) { hear_of_stall(it); }},
             request);
}

void Leader::hear_of_stall(const StallRequest& stall) {
  auto check_time = std::chrono::duration<double>(config_.stall_check_time_s);
  bool recent = last_report_ != Clock::time_point{} && Clock::now() - last_report_ < check_time / 2;
  if (recent && !stall.final) return;
  board_.look_at_all_slots();
  std::vector<StalledName> stalled = find_stalled();
  if (stall.missing.value >= 0) {
    // In a batch ranks wait for each other in chains: one that cannot move at all is named, not the next in line.
    std::vector<Rank> halted = halted_on_my_node(world_);
    stalled.push_back({std::string(stall.name), halted.empty() ? std::vector{stall.missing} : halted});
  }
  if (stalled.empty()) return;  // it has resolved itself
  last_report_ = Clock::now();
  std::string text = stall_report(world_, stalled, stall.waited_s, stall.final);
  stall.final ? log::error(text) : log::warning(text);
  if (!stall.final) return;
  if (stall.missing.value < 0) return coordinator_.shut_down(world_.rank, text);
  verdict_ = Error{ErrorCode::shut_down, "Horovod has been shut down: " + text};
}

std::vector<StalledName> Leader::find_stalled() const {
  std::vector<StalledName> stalled;
  for (Coordinator::Waiting& waiting : coordinator_.waiting())
    stalled.push_back({std::move(waiting.name), std::move(waiting.missing)});
  coordinator_.visit_slots([&](SlotId slot, const std::string& name) {
    std::vector<Rank> missing;
    for (Seat seat : board_.missing_at(slot)) missing.push_back(Rank{seat.value});
    bool is_wanted = static_cast<int>(missing.size()) < world_.size();
    if (is_wanted && !missing.empty()) stalled.push_back({name, std::move(missing)});
  });
  return stalled;
}

void Leader::append(const Record& record) {
  encode(record, scratch_);
  if (!unlogged_.empty() || !board_.append(scratch_)) unlogged_.push_back(scratch_);
}

bool Leader::append_waiting() {
  bool news = false;
  while (!unlogged_.empty() && board_.append(unlogged_.front())) {
    unlogged_.pop_front();
    news = true;
  }
  return news;
}

}  // namespace hvd::runtime
