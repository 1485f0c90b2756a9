#include "programs/thread.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace hvd::programs {

namespace {

constexpr std::size_t guard_bytes = 64;
constexpr std::byte guard{0xA5};

// Memory between two strips that must stay unchanged. The elements may have any alignment that their type allows.
class Guarded {
 public:
  Guarded(std::size_t bytes, std::size_t shift)
      : all_(bytes + 2 * guard_bytes + shift, guard), begin_(guard_bytes + shift), bytes_(bytes) {}
  std::byte* data() { return all_.data() + begin_; }
  const std::byte* data() const { return all_.data() + begin_; }
  std::size_t bytes() const { return bytes_; }
  bool is_intact() const {
    auto is_guard = [](std::byte it) { return it == guard; };
    return std::all_of(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(begin_), is_guard) &&
           std::all_of(all_.begin() + static_cast<std::ptrdiff_t>(begin_ + bytes_), all_.end(), is_guard);
  }

 private:
  std::vector<std::byte> all_;
  std::size_t begin_, bytes_;
};

// Returns the operation that the differing rank submits instead.
Kind odd_kind(Kind kind, Fault fault, const std::vector<int>& members) {
  switch (fault) {
    case Fault::dtype: kind.dtype = kind.dtype == HVD_FLOAT32 ? HVD_FLOAT64 : HVD_FLOAT32; break;
    case Fault::shape: kind.shape.push_back(1); break;
    case Fault::op: kind.op = kind.op == HVD_MIN ? HVD_MAX : HVD_MIN; break;
    case Fault::root: kind.root = kind.root == members.front() ? members.back() : members.front(); break;
    case Fault::scale: kind.prescale *= 4; break;
    case Fault::no_rows: kind.lacks_dimensions = true; break;
    case Fault::verb:
      if (kind.verb == HVD_BARRIER) {
        kind.verb = HVD_ALLREDUCE;
        kind.op = HVD_SUM;
        kind.shape = {2};
      } else {
        kind.verb = HVD_BARRIER;
      }
      break;
    case Fault::use:
    case Fault::none: break;
  }
  return kind;
}

}  // namespace

// One operation, as this rank starts it in one step.
struct Player::Thread::Part {
  Occasion occasion;
  Kind kind;  // the operation as this rank describes it
  bool is_transient = false, is_faulty = false, is_refused = false, is_in_place = false, keeps_result = false;
  Guarded input{0, 0}, output{0, 0}, before{0, 0};
  std::vector<std::int64_t> splits;
  std::int64_t rows = 0;
  std::atomic<int> calls{0};
  bool wants_call = false;
};

struct Player::Thread::Start {
  std::vector<std::unique_ptr<Part>> parts;
  hvd_handle handle = 0;
  std::string name;
};

Player::Thread::Thread(Player& player, int phase, int number, std::vector<int> uses, int steps,
                       std::latch* has_submitted)
    : player_(player),
      phase_(player.program_.phases[static_cast<std::size_t>(phase)]),
      phase_number_(phase),
      number_(number),
      uses_(std::move(uses)),
      steps_(steps),
      has_submitted_(has_submitted),
      place_(player.watch_.place("rank " + std::to_string(player.rank_) + " thread " + std::to_string(number))) {}

Player::Thread::~Thread() {
  for (const auto& [of, op] : held_) hvd_op_release(player_.runtime_, op);
}

void Player::Thread::run() {
  if (has_submitted_ != nullptr && steps_ == 0) has_submitted_->count_down();
  for (int step = 0; step < steps_; ++step) this->step(step);
  place_.does("is done");
}

void Player::Thread::step(int step) {
  place_.is_at(phase_number_, step);
  Dice common = Dice(player_.program_.seed).of({phase_number_, step, 5});
  Dice own = common.of({player_.rank_, number_});
  std::vector<int> order;
  for (int use : uses_)
    if (phase_.uses[static_cast<std::size_t>(use)].is_in(step)) order.push_back(use);
  // In lockstep all ranks use the same order, and each leaves out operations of sets without it.
  if (phase_.is_in_lockstep) std::ranges::sort(order, {}, [&](int use) { return common.of({use}).draw(); });
  else own.shuffle(order);
  std::vector<std::unique_ptr<Start>> started;
  for (std::size_t at = 0; at < order.size();) {
    if (own.one_in(40)) blunder(step);
    std::size_t together = phase_.is_in_lockstep || !own.one_in(3) ? 1 : static_cast<std::size_t>(own.between(1, 6));
    auto start = std::make_unique<Start>();
    for (; together > 0 && at < order.size(); --together) start->parts.push_back(part_of(order[at++], step));
    begin(*start, step);
    if (start->handle == 0) continue;
    if (phase_.is_in_lockstep) finish(*start);
    else started.push_back(std::move(start));
  }
  if (has_submitted_ != nullptr && step + 1 == steps_) has_submitted_->count_down();
  own.shuffle(started);
  for (auto& start : started) finish(*start);
}

std::unique_ptr<Player::Thread::Part> Player::Thread::part_of(int use, int step) {
  auto part = std::make_unique<Part>();
  part->occasion = {&player_.program_, phase_number_, use, step};
  const Use& what = part->occasion.what();
  Dice own = Dice(player_.program_.seed).of({phase_number_, step, use, player_.rank_, 6});
  part->kind = part->occasion.kind();
  part->is_transient = what.is_transient;
  part->is_faulty = what.is_faulty(step);
  const std::vector<int>& members = part->occasion.members();
  if (part->is_faulty && part->occasion.place_of(player_.rank_) == what.odd_place) {
    part->kind = odd_kind(part->kind, what.fault, members);
    if (what.fault == Fault::use) part->is_transient = !part->is_transient;
  }
  const bool is_of_a_join = !phase_.join_after.empty() && what.set == 0;
  part->is_refused = is_of_a_join && part->kind.verb != HVD_ALLREDUCE && part->kind.verb != HVD_BARRIER &&
                     std::ranges::any_of(phase_.join_after, [step](int steps) { return steps <= step; });
  const std::size_t element = bytes_of(part->kind.dtype);
  std::size_t in = static_cast<std::size_t>(count_in(part->occasion, player_.rank_)) * element;
  std::size_t out = static_cast<std::size_t>(count_out(part->occasion, player_.rank_)) * element;
  if (part->is_faulty) in = out = std::max<std::size_t>(in, 64) * 8;
  part->input = Guarded(in, element * static_cast<std::size_t>(own.below(5)));
  if (!part->is_faulty) fill_input(part->occasion, player_.rank_, part->input.data());
  part->keeps_result = part->kind.has_own_rows() || (part->kind.verb == HVD_REDUCESCATTER && own.one_in(3));
  part->is_in_place = !part->keeps_result && part->kind.verb != HVD_BARRIER && own.one_in(2) && out <= in;
  if (!part->is_in_place) part->before = part->input;
  if (!part->is_in_place && !part->keeps_result)
    part->output = Guarded(out, element * static_cast<std::size_t>(own.below(5)));
  if (part->kind.has_own_rows() && !part->is_faulty) {
    if (part->kind.verb == HVD_ALLTOALL) {
      for (int to : members) {
        part->splits.push_back(rows_between(player_.program_, phase_number_, use, step, player_.rank_, to));
        part->rows += part->splits.back();
      }
      if (has_equal_splits(player_.program_, phase_number_, use, step) && own.one_in(2)) part->splits.clear();
    } else {
      part->rows = rows_of(player_.program_, phase_number_, use, step, player_.rank_);
    }
  }
  part->wants_call = own.one_in(4);
  return part;
}

// Returns the operation: prepared again for every use, or prepared once and kept.
hvd_op* Player::Thread::operation_of(const Part& part) {
  const Use& what = part.occasion.what();
  std::string group = "group " + std::to_string(what.group);
  const char* its_group = what.group == 0 ? nullptr : group.c_str();
  const bool is_held = !part.is_transient && !part.is_faulty &&
                       Dice(player_.program_.seed).of({phase_number_, part.occasion.use, player_.rank_, 7}).one_in(2);
  if (!is_held) return player_.prepare(what.name, part.kind, player_.id_of(what.set), part.is_transient, its_group);
  const int turn = part.occasion.step / what.period % static_cast<int>(what.kinds.size());
  hvd_op*& held = held_[{part.occasion.use, turn}];
  if (held == nullptr) held = player_.prepare(what.name, part.kind, player_.id_of(what.set), false, its_group);
  return held;
}

void Player::Thread::begin(Start& start, int step) {
  start.name = start.parts.front()->occasion.what().name;
  place_.does("starts", &start.name);
  std::vector<hvd_start_arguments> arguments;
  std::vector<hvd_op*> prepared;
  for (auto& part : start.parts) {
    hvd_op* op = operation_of(*part);
    if (op == nullptr) return;
    if (!part->is_transient && std::ranges::none_of(held_, [op](const auto& it) { return it.second == op; }))
      prepared.push_back(op);
    hvd_start_arguments use = hvd_use_of(op, part->input.data(), nullptr);
    if (!part->keeps_result && part->kind.verb != HVD_BARRIER)
      use.output = part->is_in_place ? part->input.data() : part->output.data();
    use.first_dimension = part->rows;
    if (!part->splits.empty()) {
      use.splits = part->splits.data();
      use.split_count = part->splits.size();
    }
    if (part->wants_call) {
      use.on_done = [](void* calls, hvd_status, const char*) { static_cast<std::atomic<int>*>(calls)->fetch_add(1); };
      use.context = &part->calls;
    }
    arguments.push_back(use);
  }
  hvd_status status = hvd_start(player_.runtime_, arguments.data(), arguments.size(), &start.handle);
  player_.expect(HVD_OK, status, "starting '" + start.name + "' in step " + std::to_string(step));
  if (status != HVD_OK) start.handle = 0;
  for (hvd_op* op : prepared) hvd_op_release(player_.runtime_, op);
}

void Player::Thread::finish(Start& start) {
  place_.does("waits for", &start.name);
  const bool must_fail = std::ranges::any_of(start.parts, [](auto& it) { return it->is_faulty || it->is_refused; });
  std::string of = "'" + start.name + "' in phase " + std::to_string(phase_number_) + ", step " +
                   std::to_string(start.parts.front()->occasion.step) + " (" + text_of(start.parts.front()->kind) + ")";
  if (start.parts.size() > 1) of += " and " + std::to_string(start.parts.size() - 1) + " more";
  player_.expect(must_fail ? HVD_MISMATCH : HVD_OK, hvd_wait(player_.runtime_, start.handle, for_ever), of);
  for (std::size_t index = 0; index < start.parts.size(); ++index) check(start, index);
  hvd_release(player_.runtime_, start.handle);
}

void Player::Thread::check(const Start& start, std::size_t index) {
  const Part& part = *start.parts[index];
  const Occasion& it = part.occasion;
  auto complain = [&](const std::string& text) {
    player_.complain("use " + std::to_string(it.use) + " '" + it.what().name.substr(0, 40) + "' in phase " +
                     std::to_string(it.phase) + ", step " + std::to_string(it.step) + " (" + text_of(part.kind) +
                     "): " + text);
  };
  if (part.wants_call && part.calls.load() != 1)
    complain("on_done was called " + std::to_string(part.calls.load()) + " times");
  if (!part.input.is_intact() || !part.output.is_intact()) complain("memory around a tensor was written to");
  if (part.is_faulty || part.is_refused || part.kind.verb == HVD_BARRIER) return;
  if (!part.is_in_place && std::memcmp(part.input.data(), part.before.data(), part.input.bytes()) != 0)
    complain("the input was changed");
  std::vector<std::byte> kept;
  const std::byte* result = part.is_in_place ? part.input.data() : part.output.data();
  if (part.keeps_result) {
    kept.resize(static_cast<std::size_t>(count_out(it, player_.rank_)) * bytes_of(part.kind.dtype));
    hvd_status status = hvd_result_copy(player_.runtime_, start.handle, index, kept.data(), kept.size());
    if (status != HVD_OK) return complain(std::string("the result could not be copied: ") + hvd_last_error());
    result = kept.data();
  }
  if (part.kind.has_own_rows()) {
    std::vector<std::int64_t> found(it.members().size(), -1);
    player_.expect(HVD_OK, hvd_result_splits(player_.runtime_, start.handle, index, found.data(), found.size()),
                   "the splits of a result");
    if (found != rows_from(it, player_.rank_)) complain("the rows from each rank are wrong");
  }
  if (auto fault = find_fault(it, player_.rank_, result)) complain(*fault);
}

// Makes a call that is refused at once. The other ranks do not notice.
void Player::Thread::blunder(int step) {
  Dice own = Dice(player_.program_.seed).of({phase_number_, step, player_.rank_, number_, 8});
  const auto size = player_.program_.ranks();
  Kind kind;
  kind.shape = {3};
  std::vector<std::int64_t> splits(static_cast<std::size_t>(size), 1);
  std::vector<float> data(64);
  hvd_start_arguments use{};
  auto try_to_prepare = [&](int set) {
    hvd_op* op = nullptr;
    return player_.try_to_prepare("a mistake", kind, set, false, nullptr, op);
  };
  auto refused = [&](const char* what, hvd_status status) { player_.expect(HVD_INVALID_ARGUMENT, status, what); };
  switch (own.below(6)) {
    case 0:
      kind.verb = HVD_BROADCAST;
      kind.root = own.one_in(2) ? size : -1;
      return refused("a foreign root", try_to_prepare(0));
    case 1: return refused("an unknown set", try_to_prepare(9999));
    case 2:
      for (std::size_t set = 1; set < player_.program_.sets.size(); ++set)
        if (player_.program_.sets[set].is_static && phase_number_ == 0 && phase_.changes.empty() &&
            !player_.is_member(static_cast<int>(set)))
          return refused("an operation of a set of others", try_to_prepare(player_.id_of(static_cast<int>(set))));
      return;
    case 3: splits.push_back(1); break;
    case 4: splits[0] = -1; break;
    default: splits[0] = 60; break;
  }
  kind.verb = HVD_ALLTOALL;
  kind.shape.clear();
  hvd_op* op = player_.prepare("bad splits", kind, 0, false);
  use = hvd_use_of(op, data.data(), nullptr);
  use.first_dimension = 20;
  use.splits = splits.data();
  use.split_count = splits.size();
  hvd_handle handle = 0;
  refused("bad splits", hvd_start(player_.runtime_, &use, 1, &handle));
  hvd_op_release(player_.runtime_, op);
}

}  // namespace hvd::programs
