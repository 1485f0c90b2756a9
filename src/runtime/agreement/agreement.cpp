#include "runtime/agreement/agreement.hpp"

#include <algorithm>

#include "base/overloaded.hpp"
#include "base/panic.hpp"

namespace hvd::runtime {

NodeAgreement::NodeAgreement(Settings settings, AgreementEffects& effects)
    : settings_(std::move(settings)),
      effects_(effects),
      sets_(settings_.world_size),
      electorates_({settings_.ranks, settings_.children, settings_.child_above, settings_.world_size}),
      ballots_(static_cast<int>(settings_.ranks.size()) + settings_.children),
      arrivals_(settings_.coordinator.slots, settings_.children),
      children_(static_cast<std::size_t>(settings_.children)),
      news_(arrivals_.size()),
      missing_(ballots_, settings_.children) {
  for (const std::vector<Rank>& ranks : settings_.sets) sets_.add(ranks);
  for (const auto& [id, set] : sets_.all()) elect(set);
  if (settings_.is_root)
    coordinator_ =
        std::make_unique<Coordinator>(settings_.coordinator, sets_, [this](const Record& it) { decided(it); });
}

// Sets which ranks and subtrees have a say about the set from now on. Passes on what becomes complete by the change.
void NodeAgreement::elect(const ProcessSet& set) {
  const Electorate& electorate = electorates_.elect(set);
  for (const Poll& poll : ballots_.set_electorate(set.id, electorate.voters)) voted(poll.name, poll.opinions);
}

void NodeAgreement::request(Seat from, ConstBytes request) {
  auto decoded = decode_request(request);
  if (!decoded) panic(decoded.error().message);
  Rank rank = settings_.ranks[static_cast<std::size_t>(from.value)];
  if (const auto* op = std::get_if<OpRequest>(&*decoded)) {
    if (is_void(from.value, op->name, op->seen)) return;
    open(op->name);
    effects_.ballot_received(op->name, rank);
    return vote(from.value, op->name, {{rank, op->signature}});
  }
  handle(rank, *decoded, request);
}

// Sends a request to the parent if the coordinator is on another node.
void NodeAgreement::handle(Rank from, const Request& request, ConstBytes bytes) {
  if (!coordinator_) return news_.add(RequestItem{from, bytes});
  std::visit(Overloaded{[](const OpRequest&) {},
                        [&](const JoinRequest& it) {
                          coordinator_->join(from, it.is_idle);
                          note_joins();
                          coordinator_->end_joins();
                        },
                        [&](const ShutdownRequest& it) { coordinator_->shut_down(from, it.reason); },
                        [&](const PublishRequest& it) { coordinator_->publish(from, it.set, it.key, it.value); },
                        [&](const StallRequest& it) { effects_.stall_received(from, it); },
                        [&](const StopPointRequest& it) { coordinator_->set_stop_point(from, it.cause, it.reason); },
                        [&](const StopAckRequest&) { effects_.ack_received(from); },
                        [&](const BatchEndedRequest& it) { coordinator_->batch_ended(it.set, it.kind); }},
             request);
}

// True if the ballot does not count any more. Then its rank sent it before it had read one of these records: the set
// was removed, the joins are over, or the name was decided without this rank.
bool NodeAgreement::is_void(int voter, OpNameView name, std::uint64_t seen) const {
  if (!ballots_.knows(name.set) || (name.set == global_process_set && seen < joins_ended_at_)) return true;
  if (has_a_say(voter, name.set)) return false;
  auto decided = decided_at_.find(name);
  return (decided != decided_at_.end() && seen < decided->second) || ballots_.has_voted(voter, name);
}

void NodeAgreement::open(OpNameView name) {
  if (!ballots_.open(name)) return;
  if (coordinator_) coordinator_->contest(name);
  else news_.add_opened(name);
}

void NodeAgreement::vote(int voter, OpNameView name, Opinions opinions) {
  if (auto all = ballots_.vote(voter, name, std::move(opinions))) voted(name, *all);
}

// Handles a name for which all that have a say on this subtree have voted.
void NodeAgreement::voted(OpNameView name, const Opinions& opinions) {
  if (coordinator_) decide(name, opinions);
  else news_.add(BallotItem{name, records_, opinions});
}

void NodeAgreement::decide(OpNameView name, const Opinions& opinions) {
  const Opinion &first = opinions.front(), &last = opinions.back();
  auto mismatch = find_mismatch(std::string(name.name), first.signature, settings_.describe(first.rank), last.signature,
                                settings_.describe(last.rank));
  if (mismatch) coordinator_->disagreed(name, *mismatch);
  else coordinator_->agreed(name, first.signature);
}

void NodeAgreement::node_arrived(SlotId slot) {
  arrived(slot, Subtrees::own_node);
}

void NodeAgreement::arrived(SlotId slot, int part) {
  arrivals_.add(slot, part);
  pass_on_if_complete(slot);
}

void NodeAgreement::pass_on_if_complete(SlotId slot) {
  if (!arrivals_.become_complete(slot)) return;
  if (coordinator_) coordinator_->all_arrived(slot);
  else news_.add_arrival(slot);
}

// Takes new joins into account: what waited only for the joined ranks is now complete.
void NodeAgreement::note_joins() {
  if (!std::exchange(joins_are_new_, false)) return;
  elect(sets_.world());
  for (SlotId slot{0}; arrivals_.has(slot); ++slot.value)
    if (arrivals_.set_of(slot) == global_process_set) pass_on_if_complete(slot);
}

void NodeAgreement::announce_loss(Rank rank, std::string_view why) {
  Neighbour nobody{settings_.children};
  pass_on_lost(nobody, rank, why);
}

void NodeAgreement::pass_on_lost(Neighbour except, Rank rank, std::string_view why) {
  scratch_.clear();
  ByteWriter writer(scratch_);
  write_item(writer, LostItem{rank, why});
  for (int child = -1; child < settings_.children; ++child) {
    if (child == except.child || (child < 0 && settings_.is_root)) continue;
    put(Neighbour{child}, scratch_);
  }
}

void NodeAgreement::put(Neighbour to, const Buffer& frame) {
  effects_.send(to, frame);
  ++frames_sent_;
}

Status NodeAgreement::receive(Neighbour from, ConstBytes frame) {
  ByteReader reader(frame);
  Sender sender{from};
  while (!reader.at_end()) {
    auto item = read_item(reader, storage_);
    if (!item) return item.error();
    HVD_RETURN_IF_ERROR(std::visit([&](auto& it) { return take(sender, it); }, *item));
  }
  return {};
}

Status NodeAgreement::take(Sender& from, const PositionItem& item) {
  if (from.node.is_parent()) return broken_frame();
  from.seen = item.records;
  children_[static_cast<std::size_t>(from.node.child)].read = item.read_by_subtree;
  return {};
}

Status NodeAgreement::take(const Sender& from, const WaitingItem& item) {
  if (from.node.is_parent()) return broken_frame();
  children_[static_cast<std::size_t>(from.node.child)].waits = item.waits;
  pass_on_waiting();
  return {};
}

void NodeAgreement::set_node_waits(bool waits) {
  if (waits == node_waits_) return;
  node_waits_ = waits;
  pass_on_waiting();
}

// Tells the coordinator, or the parent, whether some program of this subtree waits.
void NodeAgreement::pass_on_waiting() {
  const bool waits = node_waits_ || std::ranges::any_of(children_, &Child::waits);
  if (std::exchange(subtree_waits_, waits) == waits) return;
  if (coordinator_) coordinator_->set_program_waits(waits);
  else news_.add(WaitingItem{waits});
}

Status NodeAgreement::take(const Sender& from, const ArrivalsItem& item) {
  if (from.node.is_parent() || !have_all(item.slots)) return broken_frame();
  for (SlotId slot : item.slots)
    if (arrivals_.counts(slot, from.seen)) arrived(slot, Subtrees::of_child(from.node.child));
  return {};
}

bool NodeAgreement::have_all(std::span<const SlotId> slots) const {
  return std::ranges::all_of(slots, [this](SlotId slot) { return arrivals_.has(slot); });
}

Status NodeAgreement::take(const Sender& from, const OpenedItem& item) {
  if (from.node.is_parent()) return broken_frame();
  if (!is_void(voter_of(from.node), item.name, item.seen)) open(item.name);
  return {};
}

Status NodeAgreement::take(const Sender& from, BallotItem& item) {
  if (from.node.is_parent() || item.opinions.empty()) return broken_frame();
  int voter = voter_of(from.node);
  if (is_void(voter, item.name, item.seen)) return {};
  if (ballots_.has_voted(voter, item.name)) return broken_frame();
  open(item.name);
  effects_.ballot_received(item.name, item.opinions.front().rank);
  vote(voter, item.name, std::move(item.opinions));
  return {};
}

Status NodeAgreement::take(const Sender&, const RequestItem& item) {
  auto decoded = decode_request(item.request);
  if (!decoded) return decoded.error();
  if (std::holds_alternative<OpRequest>(*decoded)) return broken_frame();  // an op request travels as a ballot
  handle(item.from, *decoded, item.request);
  return {};
}

Status NodeAgreement::take(const Sender&, const RecordItem& item) {
  auto record = decode_record(item.record, storage_);
  if (!record) return record.error();
  logged(*record, item.record);
  return {};
}

Status NodeAgreement::take(const Sender& from, const LostItem& item) {
  std::string why(item.why);
  pass_on_lost(from.node, item.rank, why);
  effects_.lost(item.rank, why);
  return {};
}

void NodeAgreement::ask_who_is_missing(const std::vector<SlotId>& slots) {
  ask_children({missing_.question() + 1, slots, ballots_.names()});
}

void NodeAgreement::ask_children(const QuestionItem& question) {
  std::vector<Missing> here;
  for (SlotId slot : question.slots) here.push_back({slot, {}, effects_.missing_at(slot)});
  for (const OpName& name : question.names) {
    here.push_back({SlotId{-1}, name, {}});
    for (int voter : ballots_.missing(name))
      if (static_cast<std::size_t>(voter) < settings_.ranks.size())
        here.back().ranks.push_back(settings_.ranks[static_cast<std::size_t>(voter)]);
  }
  missing_.ask(question.question, std::move(here));
  scratch_.clear();
  ByteWriter writer(scratch_);
  write_item(writer, question);
  for (int child = 0; child < settings_.children; ++child) put(Neighbour{child}, scratch_);
  answer_if_complete();
}

Status NodeAgreement::take(const Sender&, const QuestionItem& item) {
  if (!have_all(item.slots)) return broken_frame();
  ask_children(item);
  return {};
}

Status NodeAgreement::take(const Sender& from, const AnswerItem& item) {
  if (from.node.is_parent()) return broken_frame();
  switch (missing_.take_answer(from.node.child, voter_of(from.node), item)) {
    case MissingRanks::Answer::broken: return broken_frame();
    case MissingRanks::Answer::taken: answer_if_complete(); break;
    case MissingRanks::Answer::outdated: break;
  }
  return {};
}

void NodeAgreement::answer_if_complete() {
  if (!missing_.silent_children().empty()) return;
  if (coordinator_) return effects_.answered(missing_.known());
  flush_up();  // the parent gets new votes before the answer, so their ranks are not counted as missing
  scratch_.clear();
  ByteWriter writer(scratch_);
  write_item(writer, missing_.answer());
  put(Neighbour::parent(), scratch_);
}

void NodeAgreement::decided(const Record& record) {
  Buffer bytes;
  bytes.swap(frame_);  // the swap keeps the capacity of both buffers; encode() clears its buffer
  encode(record, bytes);
  logged(record, bytes);
  frame_.swap(bytes);
}

// Appends a record to the log of this node and sends it to the nodes below.
void NodeAgreement::logged(const Record& record, ConstBytes bytes) {
  ++records_;
  take_note(record);
  effects_.append(bytes);
  if (settings_.children == 0) return;
  ByteWriter writer(records_down_);
  write_item(writer, RecordItem{bytes});
}

void NodeAgreement::note_decided(OpNameView name) {
  if (name.set == global_process_set && electorates_.have_some_joined())
    decided_at_.insert_or_assign(OpName(name), records_);
}

void NodeAgreement::take_note(const Record& record) {
  auto forget_arrivals = [this](SlotId slot) {
    arrivals_.forget(slot, records_);
    news_.withdraw_arrival(slot);
  };
  auto end = [&](SlotId slot) {
    forget_arrivals(slot);
    arrivals_.evict(slot);
    effects_.evicted(slot);
    news_.add_slot_in_doubt();
  };
  std::visit(Overloaded{
                 [&](const GiveRecord& it) {
                   arrivals_.give(it.slot, it.name.set, electorates_.at(it.name.set), it.signature.transient);
                   ballots_.close(it.name);
                   note_decided(it.name);
                   effects_.given(it.slot);
                   news_.add_slot_in_doubt();
                 },
                 [&](const EvictRecord& it) { end(it.slot); },
                 [&](const BatchRecord& it) {
                   for (SlotId slot : it.slots) {
                     effects_.scheduled(slot);
                     forget_arrivals(slot);
                     if (arrivals_.is_transient(slot)) end(slot);
                   }
                 },
                 [&](const FailRecord& it) {
                   ballots_.close(it.name);
                   note_decided(it.name);
                 },
                 [&](const JoinRecord& it) {
                   electorates_.note_join(it.rank);
                   joins_are_new_ = true;
                 },
                 [&](const AllJoinedRecord&) {
                   electorates_.end_joins();
                   decided_at_.clear();
                   joins_are_new_ = false;
                   joins_ended_at_ = records_;
                   ballots_.close_all(global_process_set);
                   news_.forget_opened(global_process_set);
                   elect(sets_.world());
                 },
                 [&](const AddSetRecord& it) {
                   elect(sets_.add({it.ranks.begin(), it.ranks.end()}));
                 },
                 [&](const RemoveSetRecord& it) {
                   ballots_.remove_electorate(it.set);
                   electorates_.remove(it.set);
                   sets_.remove(it.set);
                 },
                 [](const ShutdownRecord&) {},
                 [](const PublishedRecord&) {},
                 [](const StopPointRecord&) {},
             },
             record);
}

std::uint64_t NodeAgreement::read_by_subtree() const {
  std::uint64_t read = node_read_;
  for (const Child& child : children_) read = std::min(read, child.read);
  return read;
}

bool NodeAgreement::waits_for_readers() const {
  return coordinator_ ? coordinator_->has_starved() : news_.has_many_in_doubt();
}

bool NodeAgreement::flush(int batches_in_flight) {
  return flush([batches_in_flight](ProcessSetId, DeviceKind) { return batches_in_flight; });
}

bool NodeAgreement::flush(const BatchesInFlight& batches_in_flight) {
  note_joins();
  if (coordinator_) {
    coordinator_->read_by_all(read_by_subtree());
    coordinator_->schedule(batches_in_flight);
  }
  bool down = flush_down();
  return (!coordinator_ && flush_up()) || down;
}

bool NodeAgreement::flush_up() {
  if (!news_.write(frame_, {records_, read_by_subtree()}, ballots_)) return false;
  put(Neighbour::parent(), frame_);
  return true;
}

bool NodeAgreement::flush_down() {
  if (records_down_.empty()) return false;
  for (int child = 0; child < settings_.children; ++child) put(Neighbour{child}, records_down_);
  records_down_.clear();
  return true;
}

}  // namespace hvd::runtime
