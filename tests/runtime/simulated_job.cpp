#include "runtime/simulated_job.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

#include "base/overloaded.hpp"
#include "base/panic.hpp"
#include "made_up_world.hpp"
#include "runtime/agreement/schedule.hpp"

namespace hvd::runtime::simulated {

using control::NodeBoard;

namespace {

constexpr NodeBoard::Shape board_shape(int seats) {
  return {seats, 256};
}

std::shared_ptr<void> zeroed_memory(std::size_t bytes) {
  constexpr std::align_val_t alignment{64};
  void* memory = ::operator new(bytes, alignment);
  std::memset(memory, 0, bytes);
  return {memory, [alignment](void* data) { ::operator delete(data, alignment); }};
}

}  // namespace

// The part of runtime/leader that deals with the end of a job and the start before it.
class SimulatedLeader final : public AgreementEffects {
 public:
  SimulatedLeader(SimulatedJob& job, Rank me, NodeBoard& board);

  // The place of `rank` among the neighbours in the tree. Nothing if the rank is no neighbour.
  std::optional<Neighbour> neighbour(Rank rank) const;
  const std::vector<Rank>& neighbours() const { return neighbours_; }
  bool has_tree() const { return links_.size() == neighbours_.size(); }
  void linked(Rank with) { links_.insert(with); }
  bool is_linked(Rank with) const { return links_.contains(with); }

  struct Arrival {
    Rank from;
    enum class What : std::uint8_t { frame, leave, end } what;
    Buffer frame;
    std::string how;  // how the sender ended
  };
  void arrive(Arrival arrival) { arrivals_.push_back(std::move(arrival)); }

  bool step(int batches_in_flight);
  const std::optional<Error>& verdict() const { return verdict_; }
  void leave();
  void leave_because(Rank lost, std::string_view why) {
    agreement_->announce_loss(lost_.value_or(lost), why);
    leave();
  }

 private:
  void hear(const Arrival& arrival);
  void append(ConstBytes record) override {
    if (!board_.append(record)) panic("the log is full");
  }
  void send(Neighbour to, ConstBytes frame) override;
  void given(SlotId slot) override { board_.given(slot); }
  void evicted(SlotId slot) override { board_.evicted(slot); }
  void scheduled(SlotId slot) override { board_.scheduled(slot); }
  void ballot_received(OpNameView, Rank) override {}
  void stall_received(Rank, const StallRequest&) override {}
  void ack_received(Rank) override {}
  void lost(Rank rank, std::string_view why) override {
    if (verdict_) return;
    verdict_ = Error{ErrorCode::peer_lost, std::string(why)};
    lost_ = rank;
    board_.announce_lost(rank, why);
  }
  std::vector<Rank> missing_at(SlotId) const override { return {}; }
  void answered(const std::vector<Missing>&) override {}

  SimulatedJob& job_;
  const Rank me_;
  NodeBoard& board_;
  std::vector<Rank> neighbours_;  // first the parent, if there is one, then the children
  bool has_parent_ = false;
  std::set<Rank> links_, left_;
  std::unique_ptr<NodeAgreement> agreement_;
  std::deque<Arrival> arrivals_;
  std::optional<Error> verdict_;
  std::optional<Rank> lost_;
  bool has_left_ = false;
};

class SimulatedRank {
 public:
  SimulatedRank(SimulatedJob& job, Rank me, std::shared_ptr<void> board_memory);

  bool can_look() const { return fate.began && !fate.is_dead && !fate.ended && job_.now_ >= halted_until; }
  // The time at which this rank must look again if nothing happens.
  std::optional<Time> due() const;
  bool look();

  void go_on();
  void submit();
  void stop(const std::string& reason);
  void notice_loss(Rank peer);

  Fate fate;
  NodeBoard board;
  std::unique_ptr<SimulatedLeader> leader;  // only on the lowest rank of each node
  bool has_links = false;
  std::optional<Error> refusal;
  Time halted_until{};
  std::optional<Incident> incident;  // harm at a moment that is not given as a time
  struct Peer {                      // what this rank's links report about another rank
    std::optional<std::string> gave_up;
    bool is_closed = false, is_silent = false;
  };
  std::map<Rank, Peer> peers;
  std::map<std::uint64_t, std::set<Rank>> received;  // the ranks whose messages have come, by batch

 private:
  struct Batch {
    Sequence sequence;
    std::vector<std::size_t> handles;
    bool is_started = false;
  };
  const Program& program() const { return job_.scenario_.programs[static_cast<std::size_t>(me_.value)]; }
  bool comes_to_harm(Moment moment);
  void connect();
  bool take_submissions();
  bool read_log();
  void execute(const Record& record);
  bool run_batches();
  void start(Batch& batch);
  std::optional<Error> failure_of(const Batch& batch) const;
  void settle(std::size_t handle, const Error* error);
  bool check_for_end();
  bool follow_departure();
  void carry_out(const Departure::Step& step);
  void end(const Error& reason);
  void send(const Request& request);

  SimulatedJob& job_;
  const Rank me_;
  Departure departure_;
  std::optional<Time> due_;
  std::optional<std::string> request_;
  std::optional<Rank> lost_;
  std::vector<std::size_t> inbox_;
  std::map<std::int32_t, std::string> names_;  // name of the operation of each slot
  std::deque<Batch> batches_;
  int batches_started_ = 0;
  std::optional<Error> failed_batch_;
  RecordStorage storage_;
  Buffer scratch_;
};

// ---- the leader

SimulatedLeader::SimulatedLeader(SimulatedJob& job, Rank me, NodeBoard& board) : job_(job), me_(me), board_(board) {
  const topology::Layout& layout = job.layouts_[static_cast<std::size_t>(me.value)];
  const int width = job.scenario_.tree_width, node = layout.my_node;
  has_parent_ = node > 0;
  if (has_parent_) neighbours_.push_back(layout.leaders.rank_at(Seat{(node - 1) / width}));
  NodeAgreement::Settings settings;
  settings.children = std::clamp(layout.nodes - 1 - node * width, 0, width);
  for (int child = 0; child < settings.children; ++child)
    neighbours_.push_back(layout.leaders.rank_at(Seat{node * width + 1 + child}));
  settings.is_root = node == 0;
  settings.ranks = layout.node.ranks;
  settings.coordinator.slots = board.slots();
  settings.describe = [&world = job.world_](Rank rank) { return describe(world, rank); };
  agreement_ = std::make_unique<NodeAgreement>(std::move(settings), *this);
}

std::optional<Neighbour> SimulatedLeader::neighbour(Rank rank) const {
  auto found = std::find(neighbours_.begin(), neighbours_.end(), rank);
  if (found == neighbours_.end()) return std::nullopt;
  return Neighbour{static_cast<int>(found - neighbours_.begin()) - (has_parent_ ? 1 : 0)};
}

bool SimulatedLeader::step(int batches_in_flight) {
  bool news = false;
  agreement_->node_has_read(board_.records_read_by_all());
  Seat from;
  ConstBytes bytes;
  while (board_.take_request(from, bytes)) {
    news = true;
    agreement_->request(from, bytes);
  }
  while (!verdict_ && !arrivals_.empty()) {
    news = true;
    Arrival arrival = std::move(arrivals_.front());
    arrivals_.pop_front();
    if (!left_.contains(arrival.from)) hear(arrival);
  }
  return agreement_->flush(batches_in_flight) || news;
}

void SimulatedLeader::hear(const Arrival& arrival) {
  switch (arrival.what) {
    case Arrival::What::frame:
      if (auto status = agreement_->receive(*neighbour(arrival.from), arrival.frame); !status)
        panic(status.error().message);
      return;
    case Arrival::What::leave: left_.insert(arrival.from); return;
    case Arrival::What::end:
      lost(arrival.from, "the control link to " + describe(job_.world_, arrival.from) + " " + arrival.how);
  }
}

void SimulatedLeader::send(Neighbour to, ConstBytes frame) {
  Rank peer = neighbours_[static_cast<std::size_t>(to.child + (has_parent_ ? 1 : 0))];
  if (has_left_ || !links_.contains(peer) || left_.contains(peer) || job_.cut_.contains({me_, peer})) return;
  job_.at(job_.arrival(SimulatedJob::Way::control, me_, peer),
          [this, peer, bytes = Buffer(frame.begin(), frame.end())] {
            job_.rank(peer).leader->arrive({me_, Arrival::What::frame, bytes, ""});
          });
}

void SimulatedLeader::leave() {
  has_left_ = true;
  for (Rank peer : neighbours_)
    if (links_.contains(peer) && !job_.cut_.contains({me_, peer}))
      job_.at(job_.arrival(SimulatedJob::Way::control, me_, peer), [this, peer] {
        job_.rank(peer).leader->arrive({me_, Arrival::What::leave, {}, ""});
      });
}

// ---- a rank

SimulatedRank::SimulatedRank(SimulatedJob& job, Rank me, std::shared_ptr<void> board_memory)
    : board(std::move(board_memory), board_shape(job.layouts_[static_cast<std::size_t>(me.value)].node.size()),
            job.layouts_[static_cast<std::size_t>(me.value)].node.me),
      job_(job),
      me_(me),
      departure_({me, peer_timeout, [&job](Rank rank) { return describe(job.world_, rank); },
                  [] { return std::string("the leader"); }, [] { return std::string("the last batch did not end"); },
                  [&job] { return job.now_; }}) {
  if (board.me() == NodeBoard::leader) leader = std::make_unique<SimulatedLeader>(job, me, board);
}

std::optional<Time> SimulatedRank::due() const {
  std::optional<Time> first = due_;
  if (departure_.phase() == Departure::Phase::connecting)
    first = first ? std::min(*first, *fate.began + start_time) : *fate.began + start_time;
  return first;
}

// Looks once at everything that may have changed, in the order of the engine. True if anything has changed.
bool SimulatedRank::look() {
  if (departure_.phase() == Departure::Phase::held_back) {
    if (request_) departure_.stop_requested(*request_);
    return follow_departure();
  }
  if (departure_.phase() == Departure::Phase::connecting) connect();
  if (departure_.phase() == Departure::Phase::connecting && follow_departure()) return true;
  bool news = take_submissions();
  if (leader && leader->has_tree()) news |= leader->step(static_cast<int>(batches_.size()));
  news |= read_log();
  if (fate.is_dead) return true;
  if (departure_.phase() == Departure::Phase::running) news |= run_batches();
  if (fate.is_dead || check_for_end()) return true;
  return follow_departure() || news;
}

void SimulatedRank::connect() {
  if (refusal) departure_.start_failed(*refusal);
  else if (has_links) departure_.connected();
  else if (job_.now_ >= *fate.began + start_time)
    departure_.start_failed({ErrorCode::timeout, "the links between the ranks were not there in time"});
  fate.was_connected = departure_.phase() == Departure::Phase::running;
}

bool SimulatedRank::comes_to_harm(Moment moment) {
  if (!incident || incident->moment != moment) return false;
  if (moment == Moment::in_a_batch && incident->batch != batches_started_) return false;
  job_.suffer(*std::exchange(incident, std::nullopt));
  return fate.is_dead;
}

void SimulatedRank::submit() {
  if (fate.is_dead) return;
  fate.handles.push_back({"op" + std::to_string(fate.handles.size()), false, {}});
  if (fate.ended) return settle(fate.handles.size() - 1, &*fate.reason);
  inbox_.push_back(fate.handles.size() - 1);
}

void SimulatedRank::stop(const std::string& reason) {
  if (fate.is_dead || request_) return;
  request_ = reason;
  fate.requested = job_.now_;
}

void SimulatedRank::notice_loss(Rank peer) {
  Seat seat = job_.layouts_[static_cast<std::size_t>(me_.value)].node.seat_of(peer);
  if (!board.has_left(seat) && !lost_) lost_ = peer;
}

bool SimulatedRank::take_submissions() {
  bool news = !inbox_.empty();
  Signature signature;
  signature.transient = true;
  for (std::size_t handle : std::exchange(inbox_, {})) send(OpRequest{fate.handles[handle].name, signature});
  return news;
}

bool SimulatedRank::read_log() {
  bool news = false;
  ConstBytes bytes;
  bool is_connecting = departure_.phase() == Departure::Phase::connecting;
  while (!fate.is_dead && (!departure_.has_log_ended() || is_connecting) && board.read(bytes)) {
    news = true;
    auto record = decode_record(bytes, storage_);
    if (!record) panic(record.error().message);
    execute(*record);
  }
  if (news) board.publish_position();
  return news;
}

void SimulatedRank::execute(const Record& record) {
  if (const auto* give = std::get_if<GiveRecord>(&record)) {
    names_[give->slot.value] = give->name.name;
    board.open(give->slot, {});
  } else if (const auto* scheduled = std::get_if<BatchRecord>(&record)) {
    Batch batch{scheduled->sequence, {}};
    for (SlotId slot : scheduled->slots) {
      auto found = std::find_if(fate.handles.begin(), fate.handles.end(),
                                [&](const HandleState& it) { return it.name == names_.at(slot.value); });
      batch.handles.push_back(static_cast<std::size_t>(found - fate.handles.begin()));
    }
    batches_.push_back(std::move(batch));
  } else if (const auto* shutdown = std::get_if<ShutdownRecord>(&record)) {
    departure_.log_ended(shutdown->by, shutdown->reason);
    comes_to_harm(Moment::as_the_log_ends);
  }
}

bool SimulatedRank::run_batches() {
  if (batches_.empty() || failed_batch_) return false;
  Batch& batch = batches_.front();
  bool news = !batch.is_started;
  if (news) start(batch);
  if (fate.is_dead) return true;
  if (static_cast<int>(received[batch.sequence.value].size()) == job_.size() - 1) {
    std::vector<std::size_t> handles = std::move(batch.handles);
    batches_.pop_front();
    for (std::size_t handle : handles) settle(handle, nullptr);
    return true;
  }
  failed_batch_ = failure_of(batch);
  if (!failed_batch_) return news;
  if (failed_batch_->is_a_consequence) fate.doubted = job_.now_;
  departure_.batch_failed(*failed_batch_);
  return true;
}

// Sends this rank's messages of the batch. A rank that dies now has sent only some of them.
void SimulatedRank::start(Batch& batch) {
  batch.is_started = true;
  bool dies = incident && incident->moment == Moment::in_a_batch && incident->batch == batches_started_ &&
              (incident->harm == Harm::kill || incident->harm == Harm::vanish);
  for (int other = 0; other < job_.size(); ++other) {
    Rank to{other};
    if (to == me_ || (dies && job_.draw_one_of(2))) continue;
    bool is_near = job_.layouts_[static_cast<std::size_t>(me_.value)].node.seat_of(to).value >= 0;
    if (job_.messages_to_lose_ > 0 && is_near && job_.draw_one_of(4)) {
      --job_.messages_to_lose_;
      continue;
    }
    job_.at(job_.arrival(SimulatedJob::Way::data, me_, to),
            [this, to, sequence = batch.sequence.value] { job_.rank(to).received[sequence].insert(me_); });
  }
  comes_to_harm(Moment::in_a_batch);
  ++batches_started_;
}

std::optional<Error> SimulatedRank::failure_of(const Batch& batch) const {
  auto found = received.find(batch.sequence.value);
  for (const auto& [peer, it] : peers) {
    if (found != received.end() && found->second.contains(peer)) continue;
    std::string who = describe(job_.world_, peer);
    if (it.gave_up) return Error{ErrorCode::peer_lost, who + " has given up: " + *it.gave_up};
    if (it.is_silent) return Error{ErrorCode::peer_lost, who + " gives no sign of life"};
    if (!it.is_closed) continue;
    Error error{ErrorCode::peer_lost, who + " has closed its TCP connection during an operation"};
    error.is_a_consequence = true;
    return error;
  }
  return std::nullopt;
}

// The handle is done. The program starts its next op, or ends.
void SimulatedRank::settle(std::size_t handle, const Error* error) {
  HandleState& it = fate.handles[handle];
  if (it.is_settled) panic("a handle was settled twice");
  it.is_settled = true;
  if (error != nullptr) it.error = *error;
  if (error != nullptr || fate.ended) return;
  job_.after(job_.draw(milliseconds(300)), [this] { go_on(); });
}

void SimulatedRank::go_on() {
  bool is_waiting =
      std::any_of(fate.handles.begin(), fate.handles.end(), [](const auto& it) { return !it.is_settled; });
  if (static_cast<int>(fate.handles.size()) < program().operations) submit();
  else if (!is_waiting) stop(program().reason);
}

bool SimulatedRank::check_for_end() {
  if (leader && leader->verdict()) departure_.leader_ends(*leader->verdict());
  if (lost_ || board.has_lost()) {
    if (read_log()) return true;
    if (fate.is_dead) return true;
    if (auto loss = board.loss()) departure_.loss_announced(loss->rank, loss->why);
    else departure_.loss_noticed(*lost_);
  }
  if (departure_.has_log_ended() && batches_.empty()) departure_.work_done();
  if (request_) departure_.stop_requested(*request_);
  return false;
}

bool SimulatedRank::follow_departure() {
  due_.reset();
  for (bool news = false;; news = true) {
    Departure::Step step = departure_.next();
    if (const auto* wait = std::get_if<Departure::WaitUntil>(&step)) due_ = wait->when;
    if (due_ && departure_.phase() == Departure::Phase::held_back && !fate.held) fate.held = job_.now_;
    if (due_ || std::holds_alternative<Departure::GoOn>(step)) return news;
    carry_out(step);
    if (fate.is_dead) return true;
  }
}

void SimulatedRank::carry_out(const Departure::Step& step) {
  std::visit(Overloaded{
                 [](const Departure::GoOn&) {},
                 [](const Departure::WaitUntil&) {},
                 [&](const Departure::SendRequest& it) {
                   send(ShutdownRequest{it.reason});
                   comes_to_harm(Moment::as_it_stops);
                 },
                 [&](const Departure::Warn&) { fate.has_left_alone = true; },
                 [&](const Departure::AnnounceLoss& it) { board.announce_lost(it.lost, it.why); },
                 [&](const Departure::TellNeighbours& it) {
                   if (leader) leader->leave_because(it.lost, it.why);
                 },
                 [&](const Departure::Leave&) {
                   board.leave();
                   if (leader) leader->leave();
                 },
                 [&](const Departure::End& it) { end(it.reason); },
             },
             step);
}

// Gives up the links and settles all handles. Some time later the process ends.
void SimulatedRank::end(const Error& reason) {
  fate.reason = reason;
  fate.ended = job_.now_;
  fate.is_in_order = departure_.is_in_order();
  const Group& node = job_.layouts_[static_cast<std::size_t>(me_.value)].node;
  for (int other = 0; other < job_.size() && !fate.is_in_order; ++other) {
    Rank to{other};
    bool is_told = node.seat_of(to).value < 0 || job_.do_links_of_a_node_tell_;
    if (to != me_ && is_told)
      job_.at(job_.arrival(SimulatedJob::Way::data, me_, to),
              [this, to] { job_.rank(to).peers[me_].gave_up = fate.reason->message; });
  }
  for (std::size_t handle = 0; handle < fate.handles.size(); ++handle)
    if (!fate.handles[handle].is_settled) settle(handle, &reason);
  job_.after(job_.draw(seconds(2)), [this] {
    if (!fate.is_dead) job_.lose_connections(me_, false);
  });
}

void SimulatedRank::send(const Request& request) {
  encode(request, scratch_);
  if (!board.send_request(scratch_)) panic("a request finds no room");
}

// ---- the job

SimulatedJob::SimulatedJob(Scenario scenario)
    : scenario_(std::move(scenario)),
      world_(testing::made_up_world(scenario_.shape)),
      random_(scenario_.seed),
      messages_to_lose_(scenario_.lost_messages),
      do_links_of_a_node_tell_(random_() % 2 == 0) {
  for (int rank = 0; rank < world_.size(); ++rank) {
    World seen = world_;
    seen.rank = Rank{rank};
    layouts_.push_back(topology::layout_of(seen));
  }
  std::vector<std::shared_ptr<void>> boards;
  for (int seats : scenario_.shape) boards.push_back(zeroed_memory(NodeBoard::bytes_needed(board_shape(seats))));
  for (int rank = 0; rank < world_.size(); ++rank) {
    int node = layouts_[static_cast<std::size_t>(rank)].my_node;
    ranks_.push_back(std::make_unique<SimulatedRank>(*this, Rank{rank}, boards[static_cast<std::size_t>(node)]));
  }
  for (int rank = 0; rank < world_.size(); ++rank) begin(Rank{rank});
  plan_links();
  for (const Incident& incident : scenario_.incidents) plan(incident);
  for (int cut = 0; cut < scenario_.cut_links; ++cut) after(draw(seconds(4)), [this] { cut_a_link(); });
}

SimulatedJob::~SimulatedJob() = default;

const Fate& SimulatedJob::fate(Rank rank) const {
  return ranks_[static_cast<std::size_t>(rank.value)]->fate;
}

milliseconds SimulatedJob::draw(milliseconds longest) {
  return milliseconds(static_cast<std::int64_t>(random_() % (static_cast<std::uint64_t>(longest.count()) + 1)));
}

Time SimulatedJob::arrival(Way way, Rank from, Rank to) {
  Time& last = last_arrival_[{way, from, to}];
  return last = std::max(last, now_ + draw(longest_delay));
}

void SimulatedJob::begin(Rank which) {
  const Program& program = scenario_.programs[static_cast<std::size_t>(which.value)];
  after(program.begins, [this, which] {
    if (!rank(which).fate.is_dead) rank(which).fate.began = now_;
  });
  if (program.stops) after(*program.stops, [this, which, &program] { rank(which).stop(program.reason); });
}

// Plans when links become ready: some time after all ranks have begun. A link of the tree needs only its own two ends.
void SimulatedJob::plan_links() {
  auto begins = [this](Rank it) { return scenario_.programs[static_cast<std::size_t>(it.value)].begins; };
  milliseconds last{};
  for (int it = 0; it < size(); ++it) last = std::max(last, begins(Rank{it}));
  for (int it = 0; it < size(); ++it) {
    after(last + draw(longest_delay), [this, it] {
      bool all = std::all_of(ranks_.begin(), ranks_.end(), [](const auto& other) {
        return other->fate.began && !other->fate.is_dead && (!other->fate.ended || other->fate.is_in_order);
      });
      if (!all) return;
      rank(Rank{it}).has_links = true;
      for (int once = scenario_.programs[static_cast<std::size_t>(it)].at_once; once > 0; --once)
        after(draw(milliseconds(300)), [this, it] { rank(Rank{it}).submit(); });
    });
    if (!rank(Rank{it}).leader) continue;
    for (Rank peer : rank(Rank{it}).leader->neighbours())
      if (peer.value > it)
        after(std::max(begins(Rank{it}), begins(peer)) + draw(longest_delay), [this, it, peer] {
          for (Rank end : {Rank{it}, peer})
            if (rank(end).fate.is_dead || rank(end).fate.ended) return;
          rank(Rank{it}).leader->linked(peer);
          rank(peer).leader->linked(Rank{it});
        });
  }
}

void SimulatedJob::plan(const Incident& incident) {
  if (incident.moment == Moment::connecting || incident.moment == Moment::running)
    after(incident.time, [this, &incident] { suffer(incident); });
  else rank(incident.rank).incident = incident;
}

void SimulatedJob::suffer(const Incident& incident) {
  SimulatedRank& victim = rank(incident.rank);
  if (victim.fate.is_dead) return;
  switch (incident.harm) {
    case Harm::kill: return kill(incident.rank, false);
    case Harm::vanish:
      for (Rank it : layouts_[static_cast<std::size_t>(incident.rank.value)].node.ranks) kill(it, true);
      return;
    case Harm::refuse:
      victim.refusal = Error{ErrorCode::unsupported, "no transport reaches " + describe(world_, incident.rank)};
      return;
    case Harm::halt:
      victim.halted_until = now_ + incident.halt_time;
      victim.fate.halted += incident.halt_time;
      after(incident.halt_time, [] {});
  }
}

void SimulatedJob::kill(Rank which, bool is_silent) {
  if (rank(which).fate.is_dead || rank(which).fate.ended) return;
  rank(which).fate.is_dead = true;
  lose_connections(which, is_silent);
}

void SimulatedJob::lose_connections(Rank of, bool is_silent) {
  const Group& node = layouts_[static_cast<std::size_t>(of.value)].node;
  milliseconds silence = is_silent ? milliseconds(peer_timeout) : milliseconds(0);
  for (int it = 0; it < size(); ++it) {
    Rank other{it};
    if (other == of) continue;
    if (node.seat_of(other).value >= 0) {
      after(draw(milliseconds(1500)), [this, other, of] { rank(other).notice_loss(of); });
      continue;
    }
    at(arrival(Way::data, of, other) + silence, [this, other, of, is_silent] {
      (is_silent ? rank(other).peers[of].is_silent : rank(other).peers[of].is_closed) = true;
    });
    SimulatedLeader *mine = rank(of).leader.get(), *theirs = rank(other).leader.get();
    if (mine == nullptr || theirs == nullptr || !mine->is_linked(other)) continue;
    at(arrival(Way::control, of, other) + silence, [theirs, of, is_silent] {
      theirs->arrive({of, SimulatedLeader::Arrival::What::end, {}, is_silent ? "is silent" : "was closed"});
    });
  }
}

void SimulatedJob::cut_a_link() {
  std::vector<std::pair<Rank, Rank>> links;
  for (int it = 0; it < size(); ++it)
    if (rank(Rank{it}).leader)
      for (Rank peer : rank(Rank{it}).leader->neighbours())
        if (peer.value > it && rank(peer).leader->is_linked(Rank{it})) links.push_back({Rank{it}, peer});
  if (links.empty()) return;
  auto [one, other] = links[random_() % links.size()];
  for (auto [from, to] : {std::pair(one, other), std::pair(other, one)}) {
    cut_.insert({from, to});
    after(peer_timeout, [this, at_end = to, of = from] {
      rank(at_end).leader->arrive({of, SimulatedLeader::Arrival::What::end, {}, "is silent"});
    });
  }
}

bool SimulatedJob::is_over() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& it) { return it->fate.is_dead || it->fate.ended; });
}

// Lets the ranks look in random order until no rank has news.
void SimulatedJob::let_everybody_look() {
  std::vector<std::size_t> order(ranks_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (bool all = false;;) {
    std::shuffle(order.begin(), order.end(), random_);
    bool news = false;
    for (std::size_t it : order)
      if (ranks_[it]->can_look() && (all || !draw_one_of(3))) news |= ranks_[it]->look();
    if (!news && all) return;
    all = !news;
  }
}

std::optional<Time> SimulatedJob::next_time() const {
  std::optional<Time> next;
  if (!events_.empty()) next = events_.begin()->first;
  for (const auto& it : ranks_) {
    if (!it->can_look()) continue;
    if (auto due = it->due()) next = next ? std::min(*next, *due) : *due;
  }
  return next;
}

bool SimulatedJob::run() {
  const Time latest = now_ + std::chrono::minutes(5);
  for (;;) {
    let_everybody_look();
    if (is_over()) return true;
    auto next = next_time();
    // A rank that was due has looked and still has nothing to do: the job is stuck.
    bool is_stuck = next && *next <= now_ && (events_.empty() || events_.begin()->first > now_);
    if (!next || is_stuck || *next > latest) return false;
    now_ = std::max(now_, *next);
    while (!events_.empty() && events_.begin()->first <= now_) {
      auto event = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      event();
    }
  }
}

}  // namespace hvd::runtime::simulated
