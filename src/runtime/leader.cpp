#include "runtime/leader.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "base/panic.hpp"

namespace hvd::runtime {

namespace {

// The most children of a node in the tree of nodes. It is large, because a level of the tree costs a crossing of the
// network, and a child only a small frame.
constexpr int most_children = 8;

// How long the neighbours may take to confirm that this rank leaves.
constexpr auto leave_patience = std::chrono::seconds(1);
// How long a node may take to report which of its ranks are missing.
constexpr auto answer_patience = std::chrono::seconds(3);

std::int64_t bytes_on_link(ConstBytes frame) {
  return static_cast<std::int64_t>(frame.size()) + Leader::bytes_before_a_frame;
}

int children_of(const topology::Layout& layout) {
  return std::clamp(layout.nodes - 1 - layout.my_node * most_children, 0, most_children);
}

// Returns the child of node `above` whose subtree contains the node `node`; -1 if there is none.
int child_above(int node, int above) {
  while (node > above) {
    int parent = (node - 1) / most_children;
    if (parent == above) return node - above * most_children - 1;
    node = parent;
  }
  return -1;
}

NodeAgreement::Settings settings_for(const RankContext& rank, const std::vector<std::vector<Rank>>& sets) {
  const topology::Layout& layout = rank.layout;
  const Config& config = rank.config;
  NodeAgreement::Settings settings;
  settings.children = children_of(layout);
  settings.child_above = [&layout](Rank below) {
    return child_above(layout.node_of[static_cast<std::size_t>(below.value)], layout.my_node);
  };
  settings.world_size = rank.world.size();
  settings.sets = sets;
  settings.is_root = layout.my_node == 0;
  for (int seat = 0; seat < layout.node.size(); ++seat) settings.ranks.push_back(layout.node.rank_at(Seat{seat}));
  int slots = rank.board.slots();
  settings.coordinator.slots = slots;
  // Part of the slots is reserved for ops that are not cached.
  settings.coordinator.cache_capacity = std::min<std::int64_t>(config.cache_capacity, slots / 2 + slots / 4);
  settings.coordinator.fusion_threshold_bytes = config.fusion_threshold_bytes;
  settings.coordinator.device_fusion_threshold_bytes = config.device_fusion_threshold_bytes;
  settings.coordinator.linger =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(config.cycle_time_ms));
  settings.coordinator.groups_do_not_mix = config.disable_group_fusion;
  settings.describe = [&world = rank.world](Rank other) { return describe(world, other); };
  return settings;
}

}  // namespace

Leader::Leader(const RankContext& rank, connections::NetPeers* net, const std::vector<std::vector<Rank>>& sets,
               BatchesInFlight batches_in_flight)
    : world_(rank.world),
      config_(rank.config),
      layout_(rank.layout),
      board_(rank.board),
      observers_(rank.observers),
      counters_(rank.counters),
      batches_in_flight_(std::move(batches_in_flight)),
      moved_(static_cast<std::size_t>(rank.board.slots())),
      agreement_(settings_for(rank, sets), *this) {
  if (net == nullptr) return;
  auto leader_of = [&](int node) { return layout_.leaders.rank_at(Seat{node}); };
  if (layout_.my_node > 0)
    parent_ = std::make_unique<Link>(world_, *net, leader_of((layout_.my_node - 1) / most_children));
  for (int child = 0; child < children_of(layout_); ++child)
    children_.push_back(std::make_unique<Link>(world_, *net, leader_of(layout_.my_node * most_children + 1 + child)));
}

Leader::Link* Leader::link_to(Neighbour neighbour) {
  return neighbour.is_parent() ? parent_.get() : children_[static_cast<std::size_t>(neighbour.child)].get();
}

Progress Leader::connect() {
  bool all = true;
  for (int child = parent_ ? -1 : 0; child < static_cast<int>(children_.size()); ++child) {
    auto connected = link_to(Neighbour{child})->connect();
    if (!connected) {
      verdict_ = std::move(connected.error());
      return Progress::failed;
    }
    all = all && *connected;
  }
  return all ? Progress::done : Progress::pending;
}

void Leader::note_moved(SlotId slot) {
  if (!time_of_step_) time_of_step_ = Clock::now();
  moved_[static_cast<std::size_t>(slot.value)] = *time_of_step_;
}

// True if ranks arrived at the slot a short time ago. That other ranks have not arrived yet is then normal.
bool Leader::moved_lately(SlotId slot) const {
  return Clock::now() - moved_[static_cast<std::size_t>(slot.value)] <
         std::chrono::duration<double>(config_.stall_check_time_s);
}

bool Leader::step() {
  time_of_step_.reset();
  bool news = append_waiting();
  if (!unlogged_.empty()) return news;  // the log is full; further decisions would only have to wait
  // The number of records that all ranks have read is taken first, the requests and arrivals only afterwards. So a
  // message that a rank sent before it read an eviction is still ignored, even if the rank reads the eviction in
  // between.
  agreement_.node_has_read(board_.records_read_by_all());
  news |= read_board();
  news |= receive_from_neighbours();
  agreement_.set_node_waits(board_.somebody_waits());
  return agreement_.flush(batches_in_flight_) || news;
}

bool Leader::read_board() {
  bool news = false;
  Seat from;
  ConstBytes bytes;
  while (board_.take_request(from, bytes)) {
    news = true;
    agreement_.request(from, bytes);
  }
  SlotId slot;
  while (board_.take_completed(slot)) {
    news = true;
    agreement_.node_arrived(slot);
  }
  return news;
}

bool Leader::receive_from_neighbours() {
  bool news = false;
  for (int child = parent_ ? -1 : 0; child < static_cast<int>(children_.size()); ++child)
    news |= receive_from(Neighbour{child}, *link_to(Neighbour{child}));
  return news;
}

bool Leader::receive_from(Neighbour from, Link& link) {
  bool news = false;
  while (!verdict_ && !link.peer_has_left()) {
    auto frame = link.receive();
    if (!frame) {
      link_failed(from, frame.error());
      return true;
    }
    if (!*frame) break;
    news = true;
    counters_.frames_received.add();
    counters_.frame_bytes_received.add(bytes_on_link(**frame));
    if (auto status = agreement_.receive(from, **frame); !status) link_failed(from, status.error());
  }
  if (auto status = link.flush(); !status) link_failed(from, status.error());
  return news;
}

// The leader at the other end of the link is lost, or must be treated as lost.
void Leader::link_failed(Neighbour at, const Error& error) {
  lost(link_to(at)->peer(), error.message);
}

void Leader::lost(Rank rank, std::string_view why) {
  if (verdict_) return;
  verdict_ = Error{ErrorCode::peer_lost, std::string(why)};
  lost_ = rank;
  board_.announce_lost(rank, why);
}

void Leader::arm() {
  if (parent_) parent_->arm();
  for (auto& child : children_) child->arm();
}

void Leader::leave() {
  auto deadline = Deadline::after(leave_patience);
  if (parent_) parent_->leave(deadline);
  for (auto& child : children_) child->leave(deadline);
}

void Leader::leave_because(Rank lost, std::string_view why) {
  agreement_.announce_loss(lost_.value_or(lost), why);
  leave();
}

void Leader::on_stall(Rank from, const StallRequest& stall) {
  if (!stall.device.empty() && agreement_.coordinator() != nullptr) return on_device_stall(from, stall);
  auto check_time = std::chrono::duration<double>(config_.stall_check_time_s);
  bool recent = last_report_ != Clock::time_point{} && Clock::now() - last_report_ < check_time / 2;
  if (recent && !stall.final) return;
  board_.look_at_all_slots();
  if (agreement_.coordinator() == nullptr) {
    encode(Request(stall), scratch_);
    agreement_.request(Seat{0}, scratch_);
    return;
  }
  last_report_ = Clock::now();
  bool is_asked = stall_.has_value();
  if (is_asked && Clock::now() - asked_at_ < answer_patience) {
    stall_->final = stall_->final || stall.final;
    return;
  }
  stall_ = Stall{stall.waited_s, stall.missing, OpName(stall.name), stall.final};
  if (!is_asked) {
    asked_at_ = Clock::now();
    return agreement_.ask_who_is_missing(slots_in_doubt());
  }
  // The nodes below were asked a while ago. If some have not answered, all ranks wait for those nodes.
  for (int child : agreement_.silent_children()) stall_->missing = link_to(Neighbour{child})->peer();
  report_stall(agreement_.known_missing());
}

void Leader::on_device_stall(Rank from, const StallRequest& stall) {
  const StallOnDevice it{from,           std::string(stall.name.name), std::string(stall.device),
                         stall.waited_s, stall.missing.value >= 0,     stall.final};
  const auto check_time = std::chrono::duration<double>(config_.stall_check_time_s);
  const bool is_recent =
      last_report_on_device_ != Clock::time_point{} && Clock::now() - last_report_on_device_ < check_time / 2;
  if (it.is_held_up_by_program) return report_stall_on_device(it);
  if (stall_on_device_) {
    stall_on_device_->final = stall_on_device_->final || it.final;
    return;
  }
  if (is_recent && !it.final) return;
  stall_on_device_ = it;
  stall_on_device_due_ =
      Clock::now() +
      (check_time.count() > 0
           ? std::min<Clock::duration>(answer_patience, std::chrono::duration_cast<Clock::duration>(check_time))
           : answer_patience);
}

void Leader::report_stall_on_device(StallOnDevice stall) {
  stall.final = stall.final || (stall_on_device_ && stall_on_device_->final);
  const std::string text = stall_report(world_, stall, halted_on_my_node(world_));
  stall_on_device_.reset();
  last_report_on_device_ = Clock::now();
  print_stall(text, stall.final);
  if (stall.final) verdict_ = end_by_stall(text);
}

std::vector<SlotId> Leader::slots_in_doubt() const {
  std::vector<SlotId> slots;
  agreement_.coordinator()->visit_slots([&](SlotId slot, const OpName& name) {
    bool is_partial = board_.is_partial(slot) || agreement_.is_partial(slot);
    if (is_partial || name == stall_->name) slots.push_back(slot);
  });
  return slots;
}

std::vector<Rank> Leader::missing_at(SlotId slot) const {
  std::vector<Rank> missing;
  for (Seat seat : board_.missing_at(slot)) missing.push_back(layout_.node.rank_at(seat));
  return missing;
}

void Leader::answered(const std::vector<Missing>& missing) {
  if (stall_) report_stall(missing);
}

void Leader::report_stall(const std::vector<Missing>& missing) {
  Stall stall = *std::exchange(stall_, std::nullopt);
  std::vector<StalledName> stalled;
  const Coordinator& coordinator = *agreement_.coordinator();
  for (const Missing& it : missing)
    if (!it.name.name.empty() && !it.ranks.empty()) stalled.push_back({it.name.name, it.ranks});
  coordinator.visit_slots([&](SlotId slot, const OpName& name) {
    for (const Missing& it : missing) {
      const ProcessSet* set = agreement_.sets().find(name.set);
      bool is_wanted = it.slot == slot && !it.ranks.empty() && set != nullptr && it.ranks.size() < set->ranks.size() &&
                       (name == stall.name || !moved_lately(slot));
      if (is_wanted) stalled.push_back({name.name, it.ranks});
    }
  });
  if (stall.missing.value >= 0) {
    // In a batch, ranks wait for each other in chains. The report names the rank that cannot move at all, not the next
    // rank of the chain.
    std::vector<Rank> halted = halted_on_my_node(world_);
    stalled.push_back({stall.name.name, halted.empty() ? std::vector{stall.missing} : halted});
  }
  if (stalled.empty()) return;  // the stall has ended by itself
  std::string text = stall_report(world_, stalled, stall.waited_s, stall.final);
  print_stall(text, stall.final);
  if (!stall.final) return;
  if (stall.missing.value < 0) return agreement_.coordinator()->shut_down(world_.rank, text, missing_ranks_id);
  verdict_ = end_by_stall(text);
}

void Leader::await_acks() {
  if (agreement_.coordinator() == nullptr || config_.stall_check_disable || config_.stall_check_time_s <= 0) return;
  has_acked_.resize(static_cast<std::size_t>(world_.size()));
  acks_due_ = Clock::now() + milliseconds_of(config_.stall_check_time_s);
}

void Leader::ack_received(Rank from) {
  has_acked_.resize(static_cast<std::size_t>(world_.size()));
  has_acked_[static_cast<std::size_t>(from.value)] = true;
  if (std::ranges::find(has_acked_, false) == has_acked_.end()) acks_due_.reset();
}

void Leader::report_what_is_due(Clock::time_point now) {
  if (stall_on_device_ && now >= stall_on_device_due_) report_stall_on_device(*stall_on_device_);
  if (!acks_due_ || now < *acks_due_) return;
  acks_due_ = now + milliseconds_of(config_.stall_check_time_s);
  log::warning(report_missing_acks(world_, has_acked_, config_.stall_check_time_s));
}

void Leader::ballot_received(OpNameView name, Rank from) {
  for (Observer* observer : observers_) observer->ready(name.set, name.name, from);
}

void Leader::append(ConstBytes record) {
  if (!unlogged_.empty() || !board_.append(record)) unlogged_.emplace_back(record.begin(), record.end());
}

bool Leader::append_waiting() {
  bool news = false;
  while (!unlogged_.empty() && board_.append(unlogged_.front())) {
    unlogged_.pop_front();
    news = true;
  }
  return news;
}

void Leader::send(Neighbour to, ConstBytes frame) {
  Link* link = link_to(to);
  if (!link->is_connected() || link->peer_has_left()) return;
  counters_.frames_sent.add();
  counters_.frame_bytes_sent.add(bytes_on_link(frame));
  if (auto status = link->send(frame); !status) link_failed(to, status.error());
}

}  // namespace hvd::runtime
