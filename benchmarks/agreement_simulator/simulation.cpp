#include "agreement_simulator/simulation.hpp"

#include <algorithm>
#include <bit>
#include <deque>
#include <memory>
#include <queue>
#include <random>
#include <utility>

#include "agreement_simulator/network.hpp"
#include "base/panic.hpp"
#include "runtime/agreement/agreement.hpp"

namespace hvd::simulation {
namespace {

using runtime::AgreementEffects;
using runtime::Missing;
using runtime::Neighbour;
using runtime::NodeAgreement;
using runtime::Signature;

class Job;

std::string name_of(int tensor) {
  return "gradient." + std::to_string(tensor);
}
Signature signature_of(int tensor, bool is_other) {
  Signature signature;
  signature.shape = {1000 + tensor + (is_other ? 1 : 0)};
  return signature;
}
std::uint64_t mixed(std::uint64_t hash, ConstBytes bytes) {
  for (std::byte byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 1099511628211u;
  return hash;
}

// A node: its agreement, and the part of its ranks' state that the agreement depends on.
class Node final : public AgreementEffects {
 public:
  Node(Job& job, int number);

  // A rank starts the step.
  void submit(int local_rank, bool with_other_shape);
  void frame(Neighbour from, Buffer frame) { arrived_.emplace_back(from, std::move(frame)); }
  // The leader handles everything that has come. Returns the time that this takes. What the leader sends is in
  // `outbox`.
  Nanoseconds run();
  void announce_loss(Rank rank, const std::string& why) {
    agreement_->announce_loss(rank, why);
    lost(rank, why);
  }
  void begin_step();
  bool is_done() const { return unsettled_ == 0; }

  int number, first_rank, ranks;
  std::vector<std::pair<Neighbour, Buffer>> outbox;
  bool is_gone = false;    // its host has vanished
  bool has_ended = false;  // it was told of a loss
  Nanoseconds busy_until = 0;
  bool is_to_run = false;
  bool has_told_its_ranks = false;  // its ranks know that the step is over
  std::uint64_t log_hash = 14695981039346656037u;
  int batches = 0, failures = 0;
  std::string told;

 private:
  struct Tensor {
    int slot = -1;
    std::uint64_t arrived = 0;    // ranks that have arrived, as bits
    std::uint64_t submitted = 0;  // ranks that have submitted in this step
    std::uint64_t other = 0;      // those of them that submitted another shape
    bool is_settled = true;
  };
  void introduce(int tensor, int local_rank);
  void settle(Tensor& tensor);

  void append(ConstBytes record) override;
  void send(Neighbour to, ConstBytes frame) override { outbox.emplace_back(to, Buffer(frame.begin(), frame.end())); }
  void given(SlotId) override {}
  void evicted(SlotId) override {}
  void scheduled(SlotId) override {}
  void ballot_received(runtime::OpNameView, Rank) override { ++items_; }
  void stall_received(Rank, const runtime::StallRequest&) override {}
  void ack_received(Rank) override {}
  void lost(Rank, std::string_view why) override {
    has_ended = true;
    told = why;
  }
  std::vector<Rank> missing_at(SlotId) const override { return {}; }
  void answered(const std::vector<Missing>&) override {}

  Job& job_;
  std::unique_ptr<NodeAgreement> agreement_;
  std::vector<std::pair<Neighbour, Buffer>> arrived_;
  std::vector<Tensor> tensors_;
  std::vector<int> tensor_of_slot_;
  std::vector<std::pair<int, int>> withdrawn_;  // pairs of tensor and rank; these ranks have to vote
  int unsettled_ = 0;
  std::uint64_t records_ = 0;
  std::int64_t items_ = 0;  // items that were handled in this run
  runtime::RecordStorage storage_;
  Buffer scratch_;
};

class Job {
 public:
  explicit Job(const Settings& wanted)
      : settings(wanted),
        nodes_count(wanted.is_central ? wanted.ranks() : wanted.hosts),
        ranks_per_node(wanted.is_central ? 1 : wanted.ranks_per_host),
        width(wanted.is_central ? std::max(1, nodes_count - 1) : wanted.tree_width),
        network_(wanted.links, wanted.hosts, wanted.seed),
        cores_(static_cast<std::size_t>(wanted.shared_cores), 0),
        random_(wanted.seed) {
    for (int number = 0; number < nodes_count; ++number) nodes_.push_back(std::make_unique<Node>(*this, number));
  }

  Outcome run();

  const Settings settings;
  const int nodes_count, ranks_per_node, width;

  int children_of(int node) const { return std::clamp(nodes_count - 1 - node * width, 0, width); }
  int tensor_of(std::string_view name) const { return std::stoi(std::string(name.substr(name.find('.') + 1))); }

 private:
  enum class Kind : std::uint8_t { submit, frame, run, finish, notice };
  struct Event {
    Nanoseconds at;
    std::uint64_t number;  // of two events at one time, the one that was made earlier comes first
    Kind kind;
    int node, other;  // submit, finish: the local rank; frame: child or -1; notice: the node that is gone
    std::size_t frame;
    friend bool operator>(const Event& a, const Event& b) { return a.at != b.at ? a.at > b.at : a.number > b.number; }
  };
  void push(Nanoseconds at, Kind kind, int node, int other, std::size_t frame = 0) {
    events_.push({at, next_event_++, kind, node, other, frame});
  }
  // Returns the time when work ends that can begin at `at`.
  Nanoseconds work(Nanoseconds at, Nanoseconds cost) {
    if (cores_.empty()) return at + cost;
    auto core = std::min_element(cores_.begin(), cores_.end());
    *core = std::max(*core, at) + cost;
    return *core;
  }
  int host_of(int node) const { return node * ranks_per_node / settings.ranks_per_host; }
  Node& at(int node) { return *nodes_[static_cast<std::size_t>(node)]; }
  bool happens_to(const std::optional<Incident>& incident, int rank) const {
    return incident && incident->step == step_number_ && incident->rank == rank;
  }

  void begin_step();
  void lose_host(int host);
  void note_told(Nanoseconds when) { last_told_ = std::max(last_told_, when); }
  void happen(const Event& event);
  void wake(int node, Nanoseconds at);
  void run_leader(int node, Nanoseconds at);
  void deliver(int from, Nanoseconds at);

  std::vector<std::unique_ptr<Node>> nodes_;
  Network network_;
  std::vector<Nanoseconds> cores_;  // for each core, the time from which it is free
  std::mt19937_64 random_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t next_event_ = 0;
  std::deque<Buffer> frames_;  // frames under way, by number
  std::vector<std::size_t> free_frames_;
  int step_number_ = 0;
  Step step_;
  Nanoseconds step_began_ = 0, last_submission_ = 0, last_finish_ = 0, lost_at_ = -1, last_told_ = 0;
  Outcome outcome_;
};

Node::Node(Job& job, int its_number)
    : number(its_number),
      first_rank(its_number * job.ranks_per_node),
      ranks(job.ranks_per_node),
      job_(job),
      tensors_(static_cast<std::size_t>(job.settings.tensors)) {
  NodeAgreement::Settings settings;
  settings.is_root = number == 0;
  settings.children = job.children_of(number);
  settings.coordinator.slots = 2 * job.settings.tensors + 64;
  settings.coordinator.cache_capacity = job.settings.tensors + 32;
  for (int rank = 0; rank < ranks; ++rank) settings.ranks.push_back(Rank{first_rank + rank});
  settings.describe = [](Rank rank) { return "rank " + std::to_string(rank.value); };
  tensor_of_slot_.resize(static_cast<std::size_t>(settings.coordinator.slots), -1);
  agreement_ = std::make_unique<NodeAgreement>(std::move(settings), *this);
}

void Node::begin_step() {
  for (Tensor& tensor : tensors_) {
    tensor.submitted = tensor.other = 0;
    tensor.is_settled = false;
  }
  unsettled_ = job_.settings.tensors;
  has_told_its_ranks = false;
}

void Node::submit(int local_rank, bool with_other_shape) {
  std::uint64_t bit = std::uint64_t{1} << local_rank;
  for (int number_of = 0; number_of < job_.settings.tensors; ++number_of) {
    Tensor& tensor = tensors_[static_cast<std::size_t>(number_of)];
    tensor.submitted |= bit;
    if (with_other_shape && number_of == 0) tensor.other |= bit;
    introduce(number_of, local_rank);
  }
}

// Does what an engine does with a submission: it turns over a bit if the slot is known, else it sends a ballot.
void Node::introduce(int number_of, int local_rank) {
  Tensor& tensor = tensors_[static_cast<std::size_t>(number_of)];
  std::uint64_t bit = std::uint64_t{1} << local_rank;
  bool is_other = (tensor.other & bit) != 0;
  if (tensor.slot >= 0 && !is_other) {
    tensor.arrived |= bit;
    ++items_;
    if (std::popcount(tensor.arrived) == ranks) agreement_->node_arrived(SlotId{tensor.slot});
    return;
  }
  runtime::encode(runtime::Request(runtime::OpRequest{name_of(number_of), signature_of(number_of, is_other), records_}),
                  scratch_);
  agreement_->request(Seat{local_rank}, scratch_);
}

void Node::append(ConstBytes bytes) {
  ++records_;
  ++items_;
  log_hash = mixed(log_hash, bytes);
  auto record = runtime::decode_record(bytes, storage_);
  if (!record) panic(record.error().message);
  if (const auto* give = std::get_if<runtime::GiveRecord>(&*record)) {
    int tensor = job_.tensor_of(give->name.name);
    tensors_[static_cast<std::size_t>(tensor)].slot = give->slot.value;
    tensor_of_slot_[static_cast<std::size_t>(give->slot.value)] = tensor;
  } else if (const auto* evict = std::get_if<runtime::EvictRecord>(&*record)) {
    int number_of = tensor_of_slot_[static_cast<std::size_t>(evict->slot.value)];
    Tensor& tensor = tensors_[static_cast<std::size_t>(number_of)];
    tensor.slot = -1;
    std::uint64_t arrived = std::exchange(tensor.arrived, 0);
    for (int rank = 0; rank < ranks; ++rank)
      if ((arrived >> rank & 1) != 0) withdrawn_.emplace_back(number_of, rank);
  } else if (const auto* batch = std::get_if<runtime::BatchRecord>(&*record)) {
    ++batches;
    items_ += static_cast<std::int64_t>(batch->slots.size());
    for (SlotId slot : batch->slots)
      settle(tensors_[static_cast<std::size_t>(tensor_of_slot_[static_cast<std::size_t>(slot.value)])]);
  } else if (const auto* fail = std::get_if<runtime::FailRecord>(&*record)) {
    ++failures;
    told = fail->message;
    settle(tensors_[static_cast<std::size_t>(job_.tensor_of(fail->name.name))]);
  }
}

void Node::settle(Tensor& tensor) {
  if (tensor.is_settled) panic("a tensor was settled twice in a step");
  tensor.is_settled = true;
  tensor.arrived = 0;
  --unsettled_;
}

Nanoseconds Node::run() {
  const Costs& costs = job_.settings.costs;
  agreement_->node_has_read(records_);
  Nanoseconds cost = 0;
  for (auto& [from, frame] : arrived_) {
    cost += costs.frame_received;
    if (auto status = agreement_->receive(from, frame); !status) panic(status.error().message);
  }
  arrived_.clear();
  agreement_->flush(0);
  // Ranks that read an eviction vote. Their ballots are there at the leader's next look.
  while (!withdrawn_.empty()) {
    auto withdrawn = std::exchange(withdrawn_, {});
    for (auto [tensor, rank] : withdrawn) introduce(tensor, rank);
    agreement_->flush(0);
  }
  return cost + std::exchange(items_, 0) * costs.item;
}

Outcome Job::run() {
  for (step_number_ = 0; step_number_ < settings.steps && lost_at_ < 0; ++step_number_) {
    begin_step();
    while (!events_.empty()) {
      Event event = events_.top();
      events_.pop();
      happen(event);
    }
    step_.batches = at(0).batches;
    step_.failures = at(0).failures;
    step_.duration = std::max<Nanoseconds>(0, last_finish_ - step_began_);
    step_.latency = std::max<Nanoseconds>(0, last_finish_ - last_submission_);
    outcome_.steps.push_back(step_);
  }
  for (auto& node : nodes_) {
    if (node->is_gone) continue;
    outcome_.schedules_agree &= lost_at_ >= 0 || (node->log_hash == at(0).log_hash && node->is_done());
    if (lost_at_ >= 0) ++(node->has_ended ? outcome_.survivors_told : outcome_.survivors_left);
    if (!node->told.empty()) outcome_.message = node->told;
  }
  outcome_.told_after = lost_at_ < 0 ? 0 : last_told_ - lost_at_;
  return std::move(outcome_);
}

void Job::begin_step() {
  step_ = {};
  at(0).batches = at(0).failures = 0;
  step_began_ = std::max(last_finish_, last_submission_) + 1'000'000;
  last_submission_ = last_finish_ = 0;
  if (settings.lost_host && settings.lost_host->step == step_number_)
    lose_host(settings.lost_host->rank / settings.ranks_per_host);
  for (int number = 0; number < nodes_count; ++number) {
    Node& node = at(number);
    if (node.is_gone) continue;
    node.begin_step();
    for (int local = 0; local < ranks_per_node; ++local) {
      Nanoseconds when = step_began_;
      if (settings.spread > 0)
        when += static_cast<Nanoseconds>(random_() % static_cast<std::uint64_t>(settings.spread));
      if (happens_to(settings.straggler, node.first_rank + local)) when += settings.straggler_delay;
      push(work(when, settings.costs.rank_submits), Kind::submit, number, local);
    }
  }
}

void Job::lose_host(int host) {
  lost_at_ = step_began_;
  for (int number = 0; number < nodes_count; ++number) {
    if (host_of(number) != host) continue;
    at(number).is_gone = true;
    if (number > 0) push(lost_at_ + settings.patience, Kind::notice, (number - 1) / width, number);
    for (int child = 0; child < children_of(number); ++child)
      push(lost_at_ + settings.patience, Kind::notice, number * width + 1 + child, number);
  }
}

void Job::happen(const Event& event) {
  Node& node = at(event.node);
  switch (event.kind) {
    case Kind::submit:
      last_submission_ = std::max(last_submission_, event.at);
      if (node.has_ended) return;
      node.submit(event.other, happens_to(settings.mismatch, node.first_rank + event.other));
      return wake(event.node, event.at);
    case Kind::frame:
      if (!node.is_gone && !node.has_ended) {
        node.frame(Neighbour{event.other}, std::move(frames_[event.frame]));
        wake(event.node, event.at);
      }
      free_frames_.push_back(event.frame);
      return;
    case Kind::run: return run_leader(event.node, event.at);
    case Kind::finish: last_finish_ = std::max(last_finish_, event.at); return;
    case Kind::notice:
      if (node.is_gone || node.has_ended) return;
      node.announce_loss(Rank{at(event.other).first_rank}, "rank " + std::to_string(at(event.other).first_rank) +
                                                               " (host n" + std::to_string(host_of(event.other)) +
                                                               ") is lost");
      deliver(event.node, event.at);
      return note_told(event.at);
  }
}

void Job::wake(int node, Nanoseconds when) {
  if (std::exchange(at(node).is_to_run, true)) return;
  push(std::max(when + settings.costs.wake, at(node).busy_until), Kind::run, node, 0);
}

void Job::run_leader(int number, Nanoseconds when) {
  Node& node = at(number);
  node.is_to_run = false;
  if (node.is_gone || node.has_ended) return;
  node.busy_until = work(when, node.run());
  deliver(number, node.busy_until);
  if (node.has_ended) return note_told(node.busy_until);
  if (!node.is_done() || std::exchange(node.has_told_its_ranks, true)) return;
  for (int local = 0; local < ranks_per_node; ++local) {
    Nanoseconds woken = local == 0 ? node.busy_until : node.busy_until + settings.costs.wake;
    push(work(woken, settings.costs.rank_finishes), Kind::finish, number, local);
  }
}

// Sends what the node has to send, beginning at the time `when`.
void Job::deliver(int from, Nanoseconds when) {
  Node& node = at(from);
  for (auto& [to, bytes] : node.outbox) {
    when = work(when, settings.costs.frame_sent);
    int other = to.is_parent() ? (from - 1) / width : from * width + 1 + to.child;
    int as = to.is_parent() ? (from - 1) % width : -1;
    if (host_of(from) == host_of(other)) ++step_.messages_in_one_host;
    auto size = static_cast<std::int64_t>(bytes.size() + sizeof(std::uint32_t));
    ++step_.messages;
    step_.bytes += size;
    if (from == 0 || other == 0) {
      ++step_.messages_at_root;
      step_.bytes_at_root += size;
    }
    std::size_t frame = frames_.size();
    if (free_frames_.empty()) {
      frames_.emplace_back();
    } else {
      frame = free_frames_.back();
      free_frames_.pop_back();
    }
    frames_[frame] = std::move(bytes);
    Nanoseconds there = network_.travel(from, other, host_of(from), host_of(other), size, when);
    push(there, Kind::frame, other, as, frame);
  }
  node.outbox.clear();
  node.busy_until = std::max(node.busy_until, when);
}

}  // namespace

Outcome simulate(const Settings& settings) {
  return Job(settings).run();
}

}  // namespace hvd::simulation
