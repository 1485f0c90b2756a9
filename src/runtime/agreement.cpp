#include "runtime/agreement.hpp"

#include <algorithm>

#include "base/overloaded.hpp"
#include "base/panic.hpp"

namespace hvd::runtime {

namespace {

// A frame is a sequence of items. Each item begins with one of these numbers.
enum class Item : std::uint8_t { position, arrivals, opened, ballot, request, record, lost, question, answer };

// The coordinator has 1024 spare slots. With this limit it hears of freed slots long before the spare slots run out.
constexpr std::uint64_t most_slots_in_doubt = 64;

Error broken_frame() {
  return {ErrorCode::mismatch,
          "a message of the agreement between nodes is broken; do all nodes run the same release?"};
}

}  // namespace

NodeAgreement::NodeAgreement(Settings settings, AgreementEffects& effects)
    : settings_(std::move(settings)),
      effects_(effects),
      sets_(settings_.world_size),
      electorates_({settings_.ranks, settings_.children, settings_.child_above, settings_.world_size}),
      ballots_(static_cast<int>(settings_.ranks.size()) + settings_.children),
      slots_(static_cast<std::size_t>(settings_.coordinator.slots)),
      children_(static_cast<std::size_t>(settings_.children)),
      missing_(ballots_, settings_.children) {
  for (Slot& slot : slots_) slot.arrived = Subtrees(settings_.children);
  for (const std::vector<Rank>& ranks : settings_.sets) sets_.add(ranks);
  for (const auto& [id, set] : sets_.all()) elect(set);
  if (settings_.is_root)
    coordinator_ =
        std::make_unique<Coordinator>(settings_.coordinator, sets_, [this](const Record& it) { decided(it); });
  outgoing_.reserve(slots_.size());
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
    effects_.heard_ballot(op->name, rank);
    return vote(from.value, op->name, {{rank, op->signature}});
  }
  hear(rank, *decoded, request);
}

// Sends a request to the parent if the coordinator is on another node.
void NodeAgreement::hear(Rank from, const Request& request, ConstBytes bytes) {
  if (!coordinator_) {
    ByteWriter writer(requests_up_);
    writer.put(Item::request);
    writer.put(from);
    writer.put_string({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    return;
  }
  std::visit(Overloaded{[](const OpRequest&) {},
                        [&](const JoinRequest& it) {
                          coordinator_->join(from, it.is_idle);
                          note_joins();
                          coordinator_->end_joins();
                        },
                        [&](const ShutdownRequest& it) { coordinator_->shut_down(from, it.reason); },
                        [&](const PublishRequest& it) { coordinator_->publish(from, it.set, it.key, it.value); },
                        [&](const StallRequest& it) { effects_.heard_stall(from, it); },
                        [&](const StopPointRequest& it) { coordinator_->set_stop_point(from, it.cause, it.reason); },
                        [&](const HeededRequest&) { effects_.heard_heeded(from); }},
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
  else opened_.emplace_back(name);
}

void NodeAgreement::vote(int voter, OpNameView name, Opinions opinions) {
  if (auto all = ballots_.vote(voter, name, std::move(opinions))) voted(name, *all);
}

// Handles a name for which all that have a say on this subtree have voted.
void NodeAgreement::voted(OpNameView name, const Opinions& opinions) {
  if (coordinator_) decide(name, opinions);
  else pass_on_ballot(name, opinions);
}

void NodeAgreement::decide(OpNameView name, const Opinions& opinions) {
  const Opinion &first = opinions.front(), &last = opinions.back();
  auto mismatch = find_mismatch(std::string(name.name), first.signature, settings_.describe(first.rank), last.signature,
                                settings_.describe(last.rank));
  if (mismatch) coordinator_->disagreed(name, *mismatch);
  else coordinator_->agreed(name, first.signature);
}

void NodeAgreement::pass_on_ballot(OpNameView name, const Opinions& opinions) {
  ByteWriter writer(requests_up_);
  writer.put(Item::ballot);
  write(writer, name);
  writer.put(records_);
  writer.put(static_cast<std::uint32_t>(opinions.size()));
  for (const Opinion& it : opinions) {
    writer.put(it.rank);
    it.signature.write(writer);
  }
}

void NodeAgreement::node_arrived(SlotId slot) {
  arrived(slot, Subtrees::own_node);
}

void NodeAgreement::arrived(SlotId slot, int part) {
  at(slot).arrived.add(part);
  complete_if_all_arrived(slot);
}

void NodeAgreement::complete_if_all_arrived(SlotId slot) {
  Slot& it = at(slot);
  if (!it.is_given || it.is_complete || it.arrived.is_empty()) return;
  if (!it.arrived.has_all_of(it.electorate->subtrees)) return;
  it.is_complete = true;
  if (coordinator_) return coordinator_->all_arrived(slot);
  it.is_outgoing = true;
  outgoing_.push_back(slot);
}

// Takes new joins into account: what waited only for the joined ranks is now complete.
void NodeAgreement::note_joins() {
  if (!std::exchange(joins_are_new_, false)) return;
  elect(sets_.world());
  for (std::size_t slot = 0; slot < slots_.size(); ++slot)
    if (slots_[slot].set == global_process_set) complete_if_all_arrived(SlotId{static_cast<std::int32_t>(slot)});
}

void NodeAgreement::tell_lost(Rank rank, std::string_view why) {
  Neighbour nobody{settings_.children};
  pass_on_lost(nobody, rank, why);
}

void NodeAgreement::pass_on_lost(Neighbour except, Rank rank, std::string_view why) {
  scratch_.clear();
  ByteWriter writer(scratch_);
  writer.put(Item::lost);
  writer.put(rank);
  writer.put_string(why);
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
  std::uint64_t seen = 0;
  while (!reader.at_end()) {
    switch (reader.get<Item>()) {
      case Item::position:
        seen = reader.get<std::uint64_t>();
        if (from.is_parent()) return broken_frame();
        children_[static_cast<std::size_t>(from.child)].read = reader.get<std::uint64_t>();
        break;
      case Item::arrivals: {
        auto count = reader.get<std::uint32_t>();
        for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
          auto slot = reader.get<SlotId>();
          if (slot.value < 0 || static_cast<std::size_t>(slot.value) >= slots_.size()) return broken_frame();
          if (from.is_parent()) return broken_frame();
          if (at(slot).void_before <= seen) arrived(slot, Subtrees::of_child(from.child));
        }
        break;
      }
      case Item::opened: HVD_RETURN_IF_ERROR(take_opened(from, reader)); break;
      case Item::ballot: HVD_RETURN_IF_ERROR(take_ballot(from, reader)); break;
      case Item::request: HVD_RETURN_IF_ERROR(take_request(reader)); break;
      case Item::record: HVD_RETURN_IF_ERROR(take_record(reader)); break;
      case Item::lost: take_lost(from, reader); break;
      case Item::question: HVD_RETURN_IF_ERROR(take_question(reader)); break;
      case Item::answer: HVD_RETURN_IF_ERROR(take_answer(from, reader)); break;
      default: return broken_frame();
    }
    if (!reader.ok()) return broken_frame();
  }
  return {};
}

Status NodeAgreement::take_opened(Neighbour from, ByteReader& frame) {
  OpNameView name = read_name(frame);
  auto seen = frame.get<std::uint64_t>();
  if (!frame.ok() || from.is_parent()) return broken_frame();
  if (!is_void(voter_of(from), name, seen)) open(name);
  return {};
}

Status NodeAgreement::take_ballot(Neighbour from, ByteReader& frame) {
  OpNameView name = read_name(frame);
  auto seen = frame.get<std::uint64_t>();
  auto count = frame.get<std::uint32_t>();
  Opinions opinions;
  for (std::uint32_t i = 0; i < count && i < most_opinions && frame.ok(); ++i) {
    auto rank = frame.get<Rank>();
    opinions.push_back({rank, Signature::read(frame)});
  }
  int voter = voter_of(from);
  bool is_sound = frame.ok() && count > 0 && count <= most_opinions && !from.is_parent();
  if (!is_sound) return broken_frame();
  if (is_void(voter, name, seen)) return {};
  if (ballots_.has_voted(voter, name)) return broken_frame();
  open(name);
  effects_.heard_ballot(name, opinions.front().rank);
  vote(voter, name, std::move(opinions));
  return {};
}

Status NodeAgreement::take_request(ByteReader& frame) {
  auto from = frame.get<Rank>();
  auto bytes = as_bytes(frame.get_string());
  if (!frame.ok()) return broken_frame();
  auto decoded = decode_request(bytes);
  if (!decoded) return decoded.error();
  if (std::holds_alternative<OpRequest>(*decoded)) return broken_frame();  // an op request travels as a ballot
  hear(from, *decoded, bytes);
  return {};
}

Status NodeAgreement::take_record(ByteReader& frame) {
  auto bytes = as_bytes(frame.get_string());
  if (!frame.ok()) return broken_frame();
  auto record = decode_record(bytes, storage_);
  if (!record) return record.error();
  logged(*record, bytes);
  return {};
}

void NodeAgreement::take_lost(Neighbour from, ByteReader& frame) {
  auto rank = frame.get<Rank>();
  std::string why(frame.get_string());
  if (!frame.ok()) return;
  pass_on_lost(from, rank, why);
  effects_.lost(rank, why);
}

void NodeAgreement::ask_who_is_missing(const std::vector<SlotId>& slots) {
  ask_children(missing_.question() + 1, slots, ballots_.names());
}

void NodeAgreement::ask_children(std::uint32_t question, const std::vector<SlotId>& slots,
                                 const std::vector<OpName>& names) {
  std::vector<Missing> here;
  for (SlotId slot : slots) here.push_back({slot, {}, effects_.missing_at(slot)});
  for (const OpName& name : names) {
    here.push_back({SlotId{-1}, name, {}});
    for (int voter : ballots_.missing(name))
      if (static_cast<std::size_t>(voter) < settings_.ranks.size())
        here.back().ranks.push_back(settings_.ranks[static_cast<std::size_t>(voter)]);
  }
  missing_.ask(question, std::move(here));
  scratch_.clear();
  ByteWriter writer(scratch_);
  writer.put(Item::question);
  writer.put(question);
  writer.put(static_cast<std::uint32_t>(slots.size()));
  for (SlotId slot : slots) writer.put(slot);
  writer.put(static_cast<std::uint32_t>(names.size()));
  for (const OpName& name : names) write(writer, name);
  for (int child = 0; child < settings_.children; ++child) put(Neighbour{child}, scratch_);
  answer_if_complete();
}

Status NodeAgreement::take_question(ByteReader& frame) {
  auto question = frame.get<std::uint32_t>();
  auto count = frame.get<std::uint32_t>();
  std::vector<SlotId> slots;
  for (std::uint32_t i = 0; i < count && frame.ok(); ++i) slots.push_back(frame.get<SlotId>());
  for (SlotId slot : slots)
    if (slot.value < 0 || static_cast<std::size_t>(slot.value) >= slots_.size()) return broken_frame();
  count = frame.get<std::uint32_t>();
  std::vector<OpName> names;
  for (std::uint32_t i = 0; i < count && frame.ok(); ++i) names.emplace_back(read_name(frame));
  if (frame.ok()) ask_children(question, slots, names);
  return {};
}

Status NodeAgreement::take_answer(Neighbour from, ByteReader& frame) {
  if (from.is_parent()) return broken_frame();
  switch (missing_.take_answer(from.child, voter_of(from), frame)) {
    case MissingRanks::Answer::broken: return broken_frame();
    case MissingRanks::Answer::taken: answer_if_complete(); break;
    case MissingRanks::Answer::outdated: break;
  }
  return {};
}

void NodeAgreement::answer_if_complete() {
  if (!missing_.silent_children().empty()) return;
  if (coordinator_) return effects_.answered(missing_.known());
  flush_up();  // the parent hears of new votes before the answer, so their ranks are not counted as missing
  scratch_.clear();
  ByteWriter writer(scratch_);
  writer.put(Item::answer);
  missing_.write_answer(writer);
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
  writer.put(Item::record);
  writer.put_string({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

void NodeAgreement::note_decided(OpNameView name) {
  if (name.set == global_process_set && electorates_.have_some_joined())
    decided_at_.insert_or_assign(OpName(name), records_);
}

void NodeAgreement::take_note(const Record& record) {
  auto forget_arrivals = [this](SlotId slot) -> Slot& {
    Slot& it = at(slot);
    it.void_before = records_;
    it.arrived.clear();
    it.is_complete = false;
    if (std::exchange(it.is_outgoing, false)) std::erase(outgoing_, slot);
    return it;
  };
  auto end = [&](SlotId slot) {
    forget_arrivals(slot).is_given = false;
    effects_.evicted(slot);
    ++slots_in_doubt_;
  };
  std::visit(Overloaded{
                 [&](const GiveRecord& it) {
                   Slot& slot = at(it.slot);
                   slot.set = it.name.set;
                   slot.electorate = &electorates_.at(it.name.set);
                   slot.is_transient = it.signature.transient;
                   slot.is_given = true;
                   slot.arrived.clear();
                   slot.is_complete = true;  // complete by ballots; its batch follows
                   ballots_.close(it.name);
                   note_decided(it.name);
                   effects_.given(it.slot);
                   ++slots_in_doubt_;
                 },
                 [&](const EvictRecord& it) { end(it.slot); },
                 [&](const BatchRecord& it) {
                   for (SlotId slot : it.slots) {
                     effects_.scheduled(slot);
                     if (forget_arrivals(slot).is_transient) end(slot);
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
                   std::erase_if(opened_, [](const OpName& name) { return name.set == global_process_set; });
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
  return coordinator_ ? coordinator_->has_starved() : slots_in_doubt_ >= most_slots_in_doubt;
}

bool NodeAgreement::flush(int batches_in_flight) {
  return flush([batches_in_flight](ProcessSetId) { return batches_in_flight; });
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
  std::uint64_t read = read_by_subtree();
  bool must_tell = slots_in_doubt_ >= most_slots_in_doubt && read > read_told_;
  if (outgoing_.empty() && opened_.empty() && requests_up_.empty() && !must_tell) return false;
  frame_.clear();
  ByteWriter writer(frame_);
  writer.put(Item::position);
  writer.put(records_);
  writer.put(read);
  if (read > read_told_) slots_in_doubt_ = 0;
  read_told_ = read;
  if (!outgoing_.empty()) {
    writer.put(Item::arrivals);
    writer.put(static_cast<std::uint32_t>(outgoing_.size()));
    for (SlotId slot : outgoing_) {
      writer.put(slot);
      at(slot).is_outgoing = false;
    }
    outgoing_.clear();
  }
  for (const OpName& name : opened_) {
    if (!ballots_.is_open(name)) continue;  // the name became complete meanwhile
    writer.put(Item::opened);
    write(writer, name);
    writer.put(records_);
  }
  opened_.clear();
  writer.put_raw(requests_up_.data(), requests_up_.size());
  requests_up_.clear();
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
