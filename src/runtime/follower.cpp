#include "runtime/follower.hpp"

#include <algorithm>

#include "base/panic.hpp"

namespace hvd::runtime {

Follower::Follower(const RankContext& rank, const Parts& parts, const std::vector<std::vector<Rank>>& sets)
    : world_(rank.world),
      layout_(rank.layout),
      board_(rank.board),
      operations_(parts.operations),
      handles_(parts.handles),
      observers_(rank.observers),
      counters_(rank.counters),
      outbox_(parts.outbox),
      runner_(parts.runner),
      callbacks_(parts.callbacks),
      slots_(static_cast<std::size_t>(rank.board.slots())) {
  auto all = std::make_shared<ProcessSets>(world_.size());
  for (const std::vector<Rank>& ranks : sets) all->add(ranks);
  for (const auto& [id, set] : all->all())
    if (std::ranges::binary_search(set.ranks, world_.rank)) runner_.add(set);
  sets_ = std::move(all);
}

void Follower::take(std::span<const Submission> submissions, Clock::time_point now) {
  for (const Submission& submission : submissions) {
    Operation& operation = *submission.operation;
    operation.submission = submission;
    operation.since = now;
    operation.arrived = operation.scheduled = operation.is_awaited = operation.precedes_join = false;
    operation.entry->submitted = &operation;
    operation.place = in_flight_.size();
    in_flight_.push_back(&operation);
    counters_.submissions.add();
    for (Observer* observer : observers_) observer->submitted(operation);
    introduce(operation);
  }
}

// While a program waits for an operation in device memory that is in no batch, the root does not let such operations
// wait for company.
void Follower::note_waits() {
  const int before = awaited_;
  for (Operation* operation : in_flight_) {
    const bool counts = operation->signature.device != DeviceKind::host && !operation->scheduled &&
                        operation->submission.handle->is_waited_for.load(std::memory_order_relaxed);
    if (counts && !std::exchange(operation->is_awaited, true)) ++awaited_;
  }
  if (before == 0 && awaited_ > 0) board_.set_waiting(true);
}

void Follower::end_wait(Operation& operation) {
  if (std::exchange(operation.is_awaited, false) && --awaited_ == 0) board_.set_waiting(false);
}

// Tells the others that this rank has submitted the op: by its bit on the board if the op has a slot, else by a ballot.
void Follower::introduce(Operation& operation) {
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
int Follower::note_what_precedes_a_join() {
  for (Operation* operation : in_flight_) {
    bool is_counted = operation->entry->set == global_process_set && !operation->precedes_join &&
                      operation->signature.verb != Verb::join;
    if (!is_counted) continue;
    operation->precedes_join = true;
    ++preceding_join_;
  }
  return preceding_join_;
}

// Settles the operation in flight under the name.
void Follower::settle_by_name(OpNameView name, const Error* error) {
  Operation* operation = operations_.submitted(name);
  if (operation != nullptr && !operation->scheduled) settle(*operation, error);
  handles_.announce();
}

void Follower::fail(const FailRecord& record) {
  Error error{record.code, std::string(record.message)};
  settle_by_name(record.name, &error);
}

CurrentSets Follower::sets() const {
  std::lock_guard lock(sets_mutex_);
  return sets_;
}

void Follower::change_sets(const std::function<void(ProcessSets&)>& change) {
  auto changed = std::make_shared<ProcessSets>(*sets_);
  change(*changed);
  std::lock_guard lock(sets_mutex_);
  sets_ = std::move(changed);
}

// Returns which ranks of this node are members of the set, by seat. Empty if all of them are.
std::vector<bool> Follower::members_on_my_node(const ProcessSet& set) const {
  std::vector<bool> members;
  if (set.id == global_process_set) return members;
  for (Rank rank : layout_.node.ranks) members.push_back(std::ranges::binary_search(set.ranks, rank));
  return members;
}

void Follower::add_set(const AddSetRecord& record) {
  ProcessSetId id;
  change_sets([&](ProcessSets& sets) { id = sets.add({record.ranks.begin(), record.ranks.end()}).id; });
  const ProcessSet& set = *sets_->find(id);
  if (std::ranges::binary_search(set.ranks, world_.rank)) runner_.add(set);
  settle_by_name(add_set_name, nullptr);
}

void Follower::remove_set(ProcessSetId id) {
  Error removed{ErrorCode::shut_down, describe(*sets_->find(id)) + " was removed while the operation was under way"};
  std::vector<Operation*> unscheduled;
  for (Operation* operation : in_flight_)
    if (operation->entry->set == id && !operation->scheduled) unscheduled.push_back(operation);
  for (Operation* operation : unscheduled) settle(*operation, &removed);
  runner_.remove(id);
  change_sets([id](ProcessSets& sets) { sets.remove(id); });
  settle_by_name(remove_set_name, nullptr);
}

void Follower::take_note_of_join(const JoinRecord& record) {
  has_joined_ = has_joined_ || record.rank == world_.rank;
  Seat seat = layout_.node.seat_of(record.rank);
  if (seat.value < 0) return;
  joined_.resize(static_cast<std::size_t>(layout_.node.size()));
  joined_[static_cast<std::size_t>(seat.value)] = true;
  board_.set_joined(joined_);
}

void Follower::end_joins(const AllJoinedRecord& record) {
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

void Follower::learn_slot(const GiveRecord& record) {
  const ProcessSet& set = *sets_->find(record.name.set);
  board_.open(record.slot, members_on_my_node(set));
  SlotUse& slot = slots_[static_cast<std::size_t>(record.slot.value)];
  slot.is_transient = record.signature.transient;
  if (!std::ranges::binary_search(set.ranks, world_.rank)) return;
  Operation* submitted = operations_.submitted(record.name);
  bool is_mine = submitted != nullptr;
  if (is_mine && has_joined_) {  // another thread may have submitted another op of this name, which no rank has counted
    Signature given = record.signature;
    given.transient = submitted->signature.transient;
    is_mine = agree(submitted->signature, given);
  }
  if (is_mine) {
    slot.entry = submitted->entry;
    slot.entry->slot = record.slot;
    slot.entry->slot_operation = submitted;
    OperationTable::hold(*submitted);
  } else {
    if (!has_joined_) panic("a slot was given to an op that this rank did not submit");
    slot.of_others = std::make_unique<std::pair<OpName, Signature>>(OpName(record.name), record.signature);
  }
}

void Follower::forget_slot(SlotId slot) {
  NameEntry* entry = slots_[static_cast<std::size_t>(slot.value)].entry;
  Operation* submitted = entry == nullptr ? nullptr : entry->submitted;
  give_back(slot);
  if (submitted == nullptr || !submitted->arrived || submitted->scheduled) return;
  submitted->arrived = false;
  introduce(*submitted);
}

// Forgets a slot. Afterwards the name's entry may be gone, unless one of its operations is in flight.
void Follower::give_back(SlotId slot) {
  board_.close(slot);
  SlotUse use = std::exchange(slots_[static_cast<std::size_t>(slot.value)], SlotUse());
  if (use.entry == nullptr) return;
  use.entry->slot = SlotId{-1};
  operations_.release(*std::exchange(use.entry->slot_operation, nullptr));
}

void Follower::queue_batch(const BatchRecord& record) {
  const bool is_mine = runner_.has(record.set);
  std::vector<Operation*>* batch = nullptr;
  for (SlotId slot : record.slots) {
    if (is_mine) {
      Operation& operation = part_in(slot);
      if (batch == nullptr) batch = &runner_.queue(record.set, operation.signature.device, record.sequence);
      operation.scheduled = true;
      end_wait(operation);
      operation.record = records_read_;
      batch->push_back(&operation);
      for (Observer* observer : observers_) observer->agreed(operation, record.sequence);
    }
    if (slots_[static_cast<std::size_t>(slot.value)].is_transient) give_back(slot);
  }
}

// Returns this rank's operation in the op of the slot, or a stand-in.
Operation& Follower::part_in(SlotId slot) {
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
Operation& Follower::stand_in(OpNameView name, const Signature& signature) {
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

void Follower::settle(Operation& operation, const Error* error, Event end) {
  if (error != nullptr)
    for (Observer* observer : observers_) observer->failed(operation, *error);
  if (operation.submission.handle == nullptr) {
    for (StandIn& it : stand_ins_)
      if (&it.operation == &operation) it.is_in_use = false;
    return;
  }
  end_wait(operation);
  in_flight_[operation.place] = in_flight_.back();
  in_flight_[operation.place]->place = operation.place;
  in_flight_.pop_back();
  operation.entry->submitted = nullptr;
  if (std::exchange(operation.precedes_join, false) && --preceding_join_ == 0) outbox_.send(JoinRequest{true});
  if (error == nullptr && operation.when_done) operation.when_done();
  HandleCell& handle = *operation.submission.handle;
  const UseInCallback use{&handle, operation.submission.index};
  const Callback on_done = operation.extras.on_done;
  Handles::Outcome outcome{error, operation.entry->set, operation.scheduled ? operation.record : records_read_, {}};
  if (end.token != 0) outcome.end = {operation.signature.device, operation.extras.stream, end};
  operation.entry->in_flight.store(false, std::memory_order_release);
  operations_.release(operation);  // the operation may be gone after this
  handles_.note(handle, outcome);
  if (on_done.on_its_own_thread) return callbacks_.add(on_done, use, error);
  if (on_done.tell != nullptr) call(on_done, use, error);
  handles_.count_down(handle);
}

void Follower::end(std::span<const Submission> late, const Error& reason) {
  for (const Submission& submission : late) {
    Operation& operation = *submission.operation;
    operation.submission = submission;
    operation.place = in_flight_.size();
    in_flight_.push_back(&operation);
  }
  while (!in_flight_.empty()) settle(*in_flight_.back(), &reason, in_flight_.back()->extras.rest);
  handles_.announce();
}

}  // namespace hvd::runtime
