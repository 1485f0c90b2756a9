#include "runtime/engine.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "base/overloaded.hpp"
#include "base/panic.hpp"
#include "native/posix/thread.hpp"
#include "runtime/thread_affinity.hpp"

namespace hvd::runtime {

namespace {

constexpr unsigned looks_between_clocks = 1024;
// The times between two looks at a link that cannot wake the engine.
constexpr std::chrono::nanoseconds shortest_nap = std::chrono::microseconds(50),
                                   longest_nap = std::chrono::milliseconds(1);

std::chrono::nanoseconds earlier(std::chrono::nanoseconds sleep, std::chrono::nanoseconds other) {
  return sleep == posix::WaitWord::forever ? other : std::min(sleep, other);
}

// Returns a sleep that ends after `time`, not shortly before.
std::chrono::nanoseconds sleep_until(Clock::time_point time) {
  return std::max(time - Clock::now(), Clock::duration::zero()) + std::chrono::milliseconds(1);
}

Departure::Settings departure_settings(const Engine::Parts& parts) {
  Departure::Settings settings;
  settings.me = parts.world->rank;
  settings.time_for_cause = milliseconds_of(parts.config->peer_timeout_s);
  settings.describe = [&world = *parts.world](Rank rank) { return describe(world, rank); };
  Rank leader = parts.layout->node.rank_at(control::NodeBoard::leader);
  settings.describe_leader = [&world = *parts.world, leader] {
    return describe(world, leader) + what_it_does(world, leader);
  };
  return settings;
}

}  // namespace

Engine::Engine(Parts parts)
    : world_(*parts.world),
      config_(*parts.config),
      layout_(*parts.layout),
      board_(*parts.board),
      net_(parts.net),
      operations_(*parts.operations),
      handles_(*parts.handles),
      observers_(std::move(parts.observers), [this] { wake(); }),
      spin_(parts.spin),
      stop_point_([this] { wake(); }),
      outbox_(board_, counters_),
      departure_(departure_settings(parts)),
      stalls_(*parts.config) {
  auto sets = std::make_shared<ProcessSets>(world_.size());
  for (const std::vector<Rank>& ranks : parts.sets) sets->add(ranks);
  Runner::Parts runner;
  runner.teams = parts.teams;
  runner.world = &world_;
  runner.counters = &counters_;
  runner.observers = &observers_.all();
  runner.send = [this](const Request& request) { outbox_.send(request); };
  runner.finished = [this](Operation& operation, Sequence batch, const Error* error) {
    has_finished_some_ = true;
    if (error == nullptr)
      for (Observer* observer : observers_.all()) observer->finished(operation, batch);
    settle(operation, error);
  };
  runner_ = std::make_unique<Runner>(std::move(runner));
  for (const auto& [id, set] : sets->all())
    if (std::ranges::binary_search(set.ranks, world_.rank)) runner_->add(set);
  sets_ = std::move(sets);
  if (board_.me() != control::NodeBoard::leader) return;
  Leader::Parts leader;
  leader.world = &world_;
  leader.config = &config_;
  leader.layout = &layout_;
  leader.board = &board_;
  leader.net = parts.net;
  leader.observers = &observers_.all();
  leader.counters = &counters_;
  leader.sets = &parts.sets;
  leader.batches_in_flight = [this](ProcessSetId set) { return runner_->batches_in_flight(set); };
  leader_ = std::make_unique<Leader>(std::move(leader));
}

Engine::~Engine() {
  if (thread_.joinable()) thread_.join();
}

Status Engine::start(Deadline deadline) {
  slots_.resize(static_cast<std::size_t>(board_.slots()));
  auto thread = posix::start_thread("hvd-engine", [this, deadline] { run(deadline); });
  if (!thread) return thread.error();
  thread_ = std::move(*thread);
  started_.wait(0);
  if (auto reason = ended(); reason && started_.load() == 2) return *reason;
  return {};
}

void Engine::stop(std::string reason) {
  std::lock_guard lock(stop_mutex_);
  if (!stop_requested_.load(std::memory_order_relaxed)) stop_reason_ = std::move(reason);
  stop_requested_.store(true, std::memory_order_release);
  wake();
  if (thread_.joinable()) thread_.join();
}

void Engine::report_lost(Rank peer) {
  if (Seat seat = layout_.node.seat_of(peer); seat.value >= 0 && board_.has_left(seat)) return;
  int none = -1;
  lost_rank_.compare_exchange_strong(none, peer.value);
  wake();
}

std::shared_ptr<const Error> Engine::ended() const {
  std::lock_guard lock(ended_mutex_);
  return ended_;
}

namespace {
thread_local bool is_engine_thread = false;
}

bool Engine::runs_here() {
  return is_engine_thread;
}

void Engine::run(Deadline start_deadline) {
  is_engine_thread = true;
  choose_core(world_, config_, layout_);
  posix::WaitWord& word = board_.wake_word(board_.me());
  observers_.open();
  connect(start_deadline);
  started_.store(departure_.has_ended() ? 2 : 1);
  started_.notify_all();
  Patience patience(spin_);
  std::chrono::nanoseconds nap = shortest_nap;
  unsigned busy_looks = 0;
  while (!departure_.has_ended()) {
    if (departure_.phase() == Departure::Phase::held_back) {
      hold_back();
      continue;
    }
    if (progress()) {
      patience.found_work();
      nap = shortest_nap;
      // An engine that never sleeps looks at the clock from time to time.
      if (++busy_looks % looks_between_clocks == 0) watch_for_stalls();
      continue;
    }
    if (patience.look_again()) continue;
    if (runner_->progresses_only_when_polled()) {
      watch_for_stalls();
      continue;
    }
    std::uint32_t announced = word.announce();
    if (leader_) leader_->arm();
    runner_->arm();
    if (progress()) {
      word.retract();
      patience.found_work();
      continue;
    }
    if (watch_for_stalls()) {
      word.retract();
      continue;
    }
    counters_.engine_sleeps.add();
    std::chrono::nanoseconds longest = longest_sleep();
    // A link that must be polled does not wake the engine. Therefore the engine takes naps, each longer than the last.
    if (runner_->needs_polling()) {
      longest = earlier(longest, nap);
      nap = std::min(2 * nap, longest_nap);
    } else {
      nap = shortest_nap;
    }
    word.sleep(announced, longest);
    patience.found_work();
  }
  observers_.close();
}

void Engine::connect(Deadline deadline) {
  Patience patience(spin_);
  posix::WaitWord& word = board_.wake_word(board_.me());
  while (departure_.phase() == Departure::Phase::connecting) {
    // The tree of nodes is connected first: the other links are made by messages in the log (log_exchange.hpp), and
    // the log travels over the tree.
    Progress tree = leader_ && !has_tree_ ? leader_->connect() : Progress::done;
    if (tree == Progress::failed) departure_.start_failed(*leader_->verdict());
    if (tree == Progress::done) {
      has_tree_ = true;
      Progress links = runner_->world().connect();
      if (links == Progress::failed) departure_.start_failed(*runner_->failure());
      if (links == Progress::done) return departure_.connected();
    }
    if (follow_departure() || progress()) continue;
    if (deadline.passed()) {
      std::string missing = net_ != nullptr ? net_->describe_missing() : "";
      departure_.start_failed({ErrorCode::timeout, "the links between the ranks were not there in time" +
                                                       (missing.empty() ? "" : ": " + missing) +
                                                       "; is a rank stuck in hvd.init()? HOROVOD_START_TIMEOUT sets "
                                                       "the time"});
      follow_departure();
      return;
    }
    if (patience.look_again()) continue;
    word.sleep(word.announce(), std::chrono::milliseconds(1));  // a start is short, so it takes naps and is not woken
  }
}

// Looks once at everything that could have changed. Returns true if something had.
bool Engine::progress() {
  observers_.take_changes();
  bool news = take_submissions();
  if (leader_ && has_tree_) news |= leader_->step();
  news |= read_log();
  if (departure_.phase() == Departure::Phase::running) news |= run_batches();
  if (hear_of_the_end()) return true;
  news |= follow_departure();
  if (!departure_.has_ended()) news |= outbox_.send_waiting();
  return news;
}

// Tells the departure the facts that other threads and ranks have left. Returns true if the log must be executed first:
// all ranks may have agreed to end before a loss, so the log counts before the loss.
bool Engine::hear_of_the_end() {
  if (leader_ && leader_->verdict()) departure_.leader_ends(*leader_->verdict());
  int lost = lost_rank_.load(std::memory_order_acquire);
  if (lost >= 0 || board_.has_lost()) {
    if (read_log()) return true;
    if (auto loss = board_.loss()) departure_.loss_announced(loss->rank, loss->why);
    else departure_.loss_noticed(Rank{lost});
  }
  if (departure_.has_log_ended() && runner_->is_idle()) departure_.work_done();
  if (stop_requested_.load(std::memory_order_acquire)) departure_.stop_wished(stop_reason_);
  stop_point_.pass_on(outbox_);
  return false;
}

// Carries out what the departure demands. Returns true if it demanded anything.
bool Engine::follow_departure() {
  departure_due_.reset();
  for (bool news = false;; news = true) {
    Departure::Step step = departure_.next();
    if (const auto* wait = std::get_if<Departure::WaitUntil>(&step)) departure_due_ = wait->when;
    if (departure_due_ || std::holds_alternative<Departure::GoOn>(step)) return news;
    carry_out(step);
  }
}

void Engine::carry_out(const Departure::Step& step) {
  std::visit(Overloaded{
                 [](const Departure::GoOn&) {},
                 [](const Departure::WaitUntil&) {},
                 [&](const Departure::SendWish& it) { outbox_.send(ShutdownRequest{it.reason}); },
                 [](const Departure::Warn& it) { log::warning(std::string(it.text)); },
                 [&](const Departure::AnnounceLoss& it) { board_.announce_lost(it.lost, it.why); },
                 [&](const Departure::TellNeighbours& it) {
                   if (leader_) leader_->leave_because(it.lost, it.why);
                 },
                 [&](const Departure::Leave&) {
                   board_.leave();
                   if (leader_) leader_->leave();
                 },
                 [&](const Departure::End& it) { end(it.reason); },
             },
             step);
}

// The rank is held back: the engine only sleeps, and watches for the program's own wish to stop.
void Engine::hold_back() {
  posix::WaitWord& word = board_.wake_word(board_.me());
  std::uint32_t announced = word.announce();
  if (stop_requested_.load(std::memory_order_acquire)) departure_.stop_wished(stop_reason_);
  if (follow_departure()) return word.retract();
  word.sleep(announced, sleep_until(*departure_due_));
}

bool Engine::take_submissions() {
  std::span<const Submission> submissions = inbox_.take();
  Clock::time_point now = submissions.empty() ? Clock::time_point() : Clock::now();
  if (!submissions.empty()) stalls_.begun(now);
  for (const Submission& submission : submissions) {
    Operation& operation = *submission.operation;
    operation.submission = submission;
    operation.since = now;
    operation.arrived = operation.scheduled = operation.precedes_join = false;
    operation.entry->submitted = &operation;
    operation.place = in_flight_.size();
    in_flight_.push_back(&operation);
    counters_.submissions.add();
    for (Observer* observer : observers_.all()) observer->submitted(operation);
    introduce(operation);
  }
  board_.announce_arrivals();
  return !submissions.empty();
}

// Tells the others that this rank has submitted the op: by its bit on the board if the op has a slot, else by a ballot.
void Engine::introduce(Operation& operation) {
  NameEntry& entry = *operation.entry;
  if (entry.slot.value >= 0 && entry.slot_operation == &operation) {
    operation.arrived = true;
    board_.arrive(entry.slot);
  } else if (operation.signature.verb == Verb::join) {
    board_.announce_arrivals();  // earlier submissions must not arrive after the ballot
    outbox_.send(JoinRequest{note_what_precedes_a_join() == 0});
  } else {
    outbox_.send(OpRequest{{entry.set, entry.name}, operation.signature, records_read_});
  }
}

// Counts the operations that must end before the joins may end: those under way now, even if no other rank submits
// them.
int Engine::note_what_precedes_a_join() {
  for (Operation* operation : in_flight_) {
    bool is_counted = operation->entry->set == global_process_set && !operation->precedes_join &&
                      operation->signature.verb != Verb::join;
    if (!is_counted) continue;
    operation->precedes_join = true;
    ++preceding_join_;
  }
  return preceding_join_;
}

bool Engine::read_log() {
  bool news = false;
  ConstBytes bytes;
  // While links are made, the log is still read after its end: a faster node may already have connected and stopped.
  bool is_connecting = departure_.phase() == Departure::Phase::connecting;
  while (!departure_.has_ended() && (!departure_.has_log_ended() || is_connecting) && board_.read(bytes)) {
    news = true;
    counters_.log_records.add();
    counters_.log_bytes.add(static_cast<std::int64_t>(bytes.size()));
    ++records_read_;
    auto record = decode_record(bytes, storage_);
    if (!record) panic(record.error().message);
    execute(*record);
  }
  if (news) board_.publish_position();
  return news;
}

void Engine::execute(const Record& record) {
  std::visit(Overloaded{
                 [&](const GiveRecord& it) { learn_slot(it); },
                 [&](const EvictRecord& it) { forget_slot(it.slot); },
                 [&](const BatchRecord& it) { queue_batch(it); },
                 [&](const FailRecord& it) { fail(it); },
                 [&](const JoinRecord& it) { take_note_of_join(it); },
                 [&](const AllJoinedRecord& it) { end_joins(it); },
                 [&](const AddSetRecord& it) { add_set(it); },
                 [&](const RemoveSetRecord& it) { remove_set(it.set); },
                 [&](const ShutdownRecord& it) { departure_.log_ended(it.by, it.reason); },
                 [&](const PublishedRecord& it) { runner_->published(it); },
                 [&](const StopPointRecord& it) {
                   stop_point_.take(it, records_read_);
                   if (leader_) leader_->await_heed();
                 },
             },
             record);
}

// Settles the operation in flight under the name.
void Engine::settle_by_name(OpNameView name, const Error* error) {
  NameEntry* entry = operations_.find(name);
  if (entry != nullptr && entry->submitted != nullptr && !entry->submitted->scheduled) settle(*entry->submitted, error);
  handles_.announce();
}

void Engine::fail(const FailRecord& record) {
  Error error{record.code, std::string(record.message)};
  settle_by_name(record.name, &error);
}

std::shared_ptr<const ProcessSets> Engine::sets() const {
  std::lock_guard lock(sets_mutex_);
  return sets_;
}

void Engine::change_sets(const std::function<void(ProcessSets&)>& change) {
  auto changed = std::make_shared<ProcessSets>(*sets_);
  change(*changed);
  std::lock_guard lock(sets_mutex_);
  sets_ = std::move(changed);
}

// Returns which ranks of this node are members of the set, by seat. Empty if all of them are.
std::vector<bool> Engine::members_on_my_node(const ProcessSet& set) const {
  std::vector<bool> members;
  if (set.id == global_process_set) return members;
  for (Rank rank : layout_.node.ranks) members.push_back(std::ranges::binary_search(set.ranks, rank));
  return members;
}

void Engine::add_set(const AddSetRecord& record) {
  ProcessSetId id;
  change_sets([&](ProcessSets& sets) { id = sets.add({record.ranks.begin(), record.ranks.end()}).id; });
  const ProcessSet& set = *sets_->find(id);
  if (std::ranges::binary_search(set.ranks, world_.rank)) runner_->add(set);
  settle_by_name(add_set_name, nullptr);
}

void Engine::remove_set(ProcessSetId id) {
  Error removed{ErrorCode::shut_down, describe(*sets_->find(id)) + " was removed while the operation was under way"};
  std::vector<Operation*> unscheduled;
  for (Operation* operation : in_flight_)
    if (operation->entry->set == id && !operation->scheduled) unscheduled.push_back(operation);
  for (Operation* operation : unscheduled) settle(*operation, &removed);
  runner_->remove(id);
  change_sets([id](ProcessSets& sets) { sets.remove(id); });
  settle_by_name(remove_set_name, nullptr);
}

void Engine::take_note_of_join(const JoinRecord& record) {
  has_joined_ = has_joined_ || record.rank == world_.rank;
  Seat seat = layout_.node.seat_of(record.rank);
  if (seat.value < 0) return;
  joined_.resize(static_cast<std::size_t>(layout_.node.size()));
  joined_[static_cast<std::size_t>(seat.value)] = true;
  board_.set_joined(joined_);
}

void Engine::end_joins(const AllJoinedRecord& record) {
  has_joined_ = false;
  joined_.clear();
  board_.set_joined(std::vector<bool>(static_cast<std::size_t>(layout_.node.size())));
  std::vector<Operation*> waiting;
  for (Operation* operation : in_flight_)
    if (operation->entry->set == global_process_set && !operation->scheduled) waiting.push_back(operation);
  for (Operation* operation : waiting) {
    if (operation->signature.verb != Verb::join) {
      introduce(*operation);  // ballots sent before that do not count any more
    } else {
      if (auto* last = static_cast<std::int32_t*>(operation->submission.output)) *last = record.last.value;
      settle(*operation, nullptr);
    }
  }
  handles_.announce();
}

void Engine::learn_slot(const GiveRecord& record) {
  const ProcessSet& set = *sets_->find(record.name.set);
  board_.open(record.slot, members_on_my_node(set));
  SlotUse& slot = slots_[static_cast<std::size_t>(record.slot.value)];
  slot.is_transient = record.signature.transient;
  if (!std::ranges::binary_search(set.ranks, world_.rank)) return;
  NameEntry* entry = operations_.find(record.name);
  bool is_mine = entry != nullptr && entry->submitted != nullptr;
  if (is_mine && has_joined_) {  // another thread may have submitted another op of this name, which no rank has counted
    Signature given = record.signature;
    given.transient = entry->submitted->signature.transient;
    is_mine = agree(entry->submitted->signature, given);
  }
  if (is_mine) {
    slot.entry = entry;
    entry->slot = record.slot;
    entry->slot_operation = entry->submitted;
    OperationTable::hold(*entry->slot_operation);
  } else {
    if (!has_joined_) panic("a slot was given to an op that this rank did not submit");
    slot.of_others = std::make_unique<std::pair<OpName, Signature>>(OpName(record.name), record.signature);
  }
}

void Engine::forget_slot(SlotId slot) {
  NameEntry* entry = slots_[static_cast<std::size_t>(slot.value)].entry;
  Operation* submitted = entry == nullptr ? nullptr : entry->submitted;
  give_back(slot);
  if (submitted == nullptr || !submitted->arrived || submitted->scheduled) return;
  submitted->arrived = false;
  introduce(*submitted);
}

// Forgets a slot. Afterwards the name's entry may be gone, unless one of its operations is in flight.
void Engine::give_back(SlotId slot) {
  board_.close(slot);
  SlotUse use = std::exchange(slots_[static_cast<std::size_t>(slot.value)], SlotUse());
  if (use.entry == nullptr) return;
  use.entry->slot = SlotId{-1};
  operations_.release(*std::exchange(use.entry->slot_operation, nullptr));
}

void Engine::queue_batch(const BatchRecord& record) {
  const bool is_mine = runner_->has(record.set);
  std::vector<Operation*>* batch = nullptr;
  for (SlotId slot : record.slots) {
    if (is_mine) {
      Operation& operation = part_in(slot);
      if (batch == nullptr) batch = &runner_->queue(record.set, operation.signature.device, record.sequence);
      operation.scheduled = true;
      operation.record = records_read_;
      batch->push_back(&operation);
      for (Observer* observer : observers_.all()) observer->agreed(operation, record.sequence);
    }
    if (slots_[static_cast<std::size_t>(slot.value)].is_transient) give_back(slot);
  }
}

// Returns this rank's operation in the op of the slot, or a stand-in.
Operation& Engine::part_in(SlotId slot) {
  SlotUse& use = slots_[static_cast<std::size_t>(slot.value)];
  if (use.entry == nullptr) return stand_in(use.of_others->first, use.of_others->second);
  NameEntry& entry = *use.entry;
  // An operation that is already part of an earlier batch does not count: while all ranks have joined, its op may be
  // scheduled once more.
  bool is_mine = entry.submitted != nullptr && entry.submitted == entry.slot_operation && !entry.submitted->scheduled;
  if (is_mine) return *entry.submitted;
  if (!has_joined_) panic("a batch has an op that this rank did not submit");
  return stand_in({entry.set, entry.name}, entry.slot_operation->signature);
}

// Returns an operation without data, because this rank has joined.
Operation& Engine::stand_in(OpNameView name, const Signature& signature) {
  auto idle = std::ranges::find(stand_ins_, false, &StandIn::is_in_use);
  StandIn& it = idle == stand_ins_.end() ? stand_ins_.emplace_back() : *idle;
  it.is_in_use = true;
  it.entry.set = name.set;
  it.entry.name = name.name;
  it.operation.entry = &it.entry;
  it.operation.signature = signature;
  it.operation.count = signature.count();
  it.operation.submission = {};
  it.operation.extras = {};
  it.operation.submission.operation = &it.operation;
  it.operation.since = Clock::now();
  return it.operation;
}

bool Engine::run_batches() {
  has_finished_some_ = false;
  bool news = runner_->step();
  if (news) batch_moved_ = Clock::now();
  if (has_finished_some_) handles_.announce();
  if (const Error* failure = runner_->failure()) departure_.batch_failed(*failure);
  return news;
}

void Engine::settle(Operation& operation, const Error* error) {
  if (error != nullptr)
    for (Observer* observer : observers_.all()) observer->failed(operation, *error);
  if (operation.submission.handle == nullptr) {
    for (StandIn& it : stand_ins_)
      if (&it.operation == &operation) it.is_in_use = false;
    return;
  }
  in_flight_[operation.place] = in_flight_.back();
  in_flight_[operation.place]->place = operation.place;
  in_flight_.pop_back();
  operation.entry->submitted = nullptr;
  if (std::exchange(operation.precedes_join, false) && --preceding_join_ == 0) outbox_.send(JoinRequest{true});
  if (error == nullptr && operation.when_done) operation.when_done();
  HandleCell& handle = *operation.submission.handle;
  const Callback on_done = operation.extras.on_done;
  const ProcessSetId set = operation.entry->set;
  const std::uint64_t record = operation.scheduled ? operation.record : records_read_;
  operation.entry->in_flight.store(false, std::memory_order_release);
  operations_.release(operation);  // the operation may be gone after this
  if (on_done.tell != nullptr) tell(on_done, error);
  handles_.settle(handle, error, set, record);
}

void Engine::tell(const Callback& on_done, const Error* error) {
  try {
    on_done.tell(on_done.function, on_done.context, error);
  } catch (const std::exception& thrown) {
    log::error("a callback on the completion of an operation threw an exception, which nobody can catch: " +
               std::string(thrown.what()));
  } catch (...) {
    log::error("a callback on the completion of an operation threw an exception, which nobody can catch");
  }
}

void Engine::end(const Error& reason) {
  {
    std::lock_guard lock(ended_mutex_);
    ended_ = std::make_shared<const Error>(reason);
  }
  runner_->abort(reason);
  runner_->abandon();
  inbox_.close();
  take_last_submissions();
  while (!in_flight_.empty()) settle(*in_flight_.back(), &reason);
  handles_.announce();
}

// These submissions came too late. They are only settled, with an error.
void Engine::take_last_submissions() {
  for (const Submission& submission : inbox_.take()) {
    Operation& operation = *submission.operation;
    operation.submission = submission;
    operation.place = in_flight_.size();
    in_flight_.push_back(&operation);
  }
}

std::chrono::nanoseconds Engine::longest_sleep() const {
  // Nothing announces that a ring has room again. Therefore the engine looks after this time.
  if (outbox_.has_waiting() || (leader_ && leader_->has_to_look_again())) return std::chrono::milliseconds(1);
  std::chrono::nanoseconds sleep = stalls_.until_due(Clock::now());
  if (auto report = leader_ ? leader_->heed_due() : std::nullopt) sleep = earlier(sleep, sleep_until(*report));
  return departure_due_ ? earlier(sleep, sleep_until(*departure_due_)) : sleep;
}

// An operation in a batch waits for its turn, not for a rank, while other batches begin and end.
Clock::time_point Engine::waits_since(const Operation& operation) const {
  return operation.scheduled ? std::max(operation.since, batch_moved_) : operation.since;
}

// Looks for stalls. Returns true if the departure demanded a step because of one.
bool Engine::watch_for_stalls() {
  if (departure_.phase() != Departure::Phase::running) return false;
  Clock::time_point now = Clock::now();
  if (leader_) leader_->report_who_does_not_heed(now);
  if (!stalls_.is_due(now)) return false;
  const Operation* oldest = nullptr;
  for (const Operation* operation : in_flight_)
    if (oldest == nullptr || waits_since(*operation) < waits_since(*oldest)) oldest = operation;
  std::optional<Clock::time_point> since;
  if (oldest != nullptr) since = waits_since(*oldest);
  StallWatch::Verdict verdict = stalls_.look(since, now);
  if (verdict == StallWatch::Verdict::fine || oldest == nullptr) return false;
  bool final = verdict == StallWatch::Verdict::end;
  double waited_s = std::chrono::duration<double>(stalls_.waited(*since, now)).count();
  StallRequest stall{waited_s, Rank{-1}, {oldest->entry->set, oldest->entry->name}, final};
  if (oldest->scheduled) stall.missing = runner_->waiting_for(*oldest);
  Rank leader = layout_.node.rank_at(control::NodeBoard::leader);
  if (leader_) {
    leader_->hear_of_stall(stall);
    if (leader_->verdict()) departure_.leader_ends(*leader_->verdict());
  } else if (!is_halted(world_, leader)) {
    outbox_.send(stall);
    // A running batch can never end if one of its ranks does not answer. Each rank therefore ends by itself.
    if (final && stall.missing.value >= 0)
      departure_.stalled(
          {ErrorCode::shut_down,
           "Horovod has been shut down: " +
               stall_report(world_, {{std::string(stall.name.name), {stall.missing}}}, stall.waited_s, true)});
  } else {
    std::string text = stall_report(world_, {{std::string(stall.name.name), {leader}}}, stall.waited_s, final);
    final ? log::error(text) : log::warning(text);
    if (final) departure_.stalled({ErrorCode::shut_down, "Horovod has been shut down: " + text});
  }
  return follow_departure();
}

}  // namespace hvd::runtime
