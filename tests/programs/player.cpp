#include "programs/player.hpp"

#include <algorithm>
#include <latch>
#include <thread>

#include "programs/thread.hpp"

namespace hvd::programs {

std::pair<std::vector<int>, std::vector<std::size_t>> static_sets_of(const Program& program) {
  std::pair<std::vector<int>, std::vector<std::size_t>> lists;
  for (std::size_t set = 1; set < program.sets.size(); ++set) {
    if (!program.sets[set].is_static) continue;
    const std::vector<int>& ranks = program.sets[set].ranks;
    lists.first.insert(lists.first.end(), ranks.begin(), ranks.end());
    lists.second.push_back(ranks.size());
  }
  return lists;
}

Player::Player(const Program& program, hvd_runtime* runtime, int rank, Watch& watch)
    : program_(program),
      runtime_(runtime),
      rank_(rank),
      watch_(watch),
      place_(watch.place("rank " + std::to_string(rank))),
      ids_(program.sets.size(), -1) {
  int next = 0;
  for (std::size_t set = 0; set < program.sets.size(); ++set)
    if (program.sets[set].is_static) ids_[set] = next++;
}
Player::~Player() = default;

bool Player::is_member(int set) const {
  return std::ranges::binary_search(program_.sets[static_cast<std::size_t>(set)].ranks, rank_);
}

void Player::expect(hvd_status expected, hvd_status found, const std::string& of) {
  if (found != expected)
    complain(of + ": expected status " + std::to_string(expected) + ", got " + std::to_string(found) + " (" +
             (found == HVD_OK ? "" : hvd_last_error()) + ")");
}

void Player::play() {
  for (std::size_t phase = 0; phase < program_.phases.size(); ++phase) play(static_cast<int>(phase));
  end();
  place_.does("has played its part");
}

// The threads divide the uses among them. In a phase with joins, operations of the world run on all threads but the
// first.
void Player::play(int phase) {
  const Phase& its = program_.phases[static_cast<std::size_t>(phase)];
  Dice dice = Dice(program_.seed).of({phase, rank_, 2});
  const bool joins = !its.join_after.empty();
  const int threads = its.is_in_lockstep ? 1 : dice.one_of({1, 1, 2, 3}) + (joins ? 1 : 0);
  std::vector<std::vector<int>> shares(static_cast<std::size_t>(threads));
  for (std::size_t use = 0; use < its.uses.size(); ++use) {
    if (!is_member(its.uses[use].set)) continue;
    int thread = !joins ? dice.below(threads) : its.uses[use].set != 0 ? 0 : dice.between(1, threads - 1);
    shares[static_cast<std::size_t>(thread)].push_back(static_cast<int>(use));
  }
  std::vector<std::thread> running;
  std::latch has_submitted(joins ? threads - 1 : 0);
  for (int number = 0; number < threads; ++number) {
    const bool is_of_world = joins && number > 0;
    const int steps = is_of_world ? its.join_after[static_cast<std::size_t>(rank_)] : its.steps;
    std::latch* latch = is_of_world ? &has_submitted : nullptr;
    running.emplace_back([this, phase, number, steps, latch, &share = shares[static_cast<std::size_t>(number)]] {
      Thread(*this, phase, number, share, steps, latch).run();
    });
  }
  place_.is_at(phase, 0);
  for (const Change& it : its.changes) change(it);
  place_.does("waits for its threads");
  if (joins && !its.joins_before_wait)
    for (std::size_t number = 1; number < running.size(); ++number) running[number].join();
  has_submitted.wait();
  if (joins) join(phase);
  for (std::thread& thread : running)
    if (thread.joinable()) thread.join();
}

hvd_status Player::try_to_prepare(const std::string& name, const Kind& kind, int set_id, bool is_transient,
                                  const char* group, hvd_op*& op) {
  std::vector<std::int64_t> shape = kind.shape;
  if (kind.lacks_dimensions) shape.clear();
  else if (kind.has_own_rows()) shape.insert(shape.begin(), 7);  // any number of rows
  hvd_op_description description{};
  description.struct_size = sizeof description;
  description.name = name.c_str();
  description.verb = kind.verb;
  description.dtype = kind.dtype;
  description.reduce_op = kind.op;
  description.dimensions = static_cast<int>(shape.size());
  description.shape = shape.data();
  description.prescale = kind.prescale;
  description.postscale = kind.postscale;
  description.root_rank = kind.root;
  description.process_set = set_id;
  description.transient = is_transient ? 1 : 0;
  description.group = group;
  return hvd_prepare(runtime_, &description, &op);
}

hvd_op* Player::prepare(const std::string& name, const Kind& kind, int set_id, bool is_transient, const char* group) {
  hvd_op* op = nullptr;
  expect(HVD_OK, try_to_prepare(name, kind, set_id, is_transient, group, op),
         "preparing '" + name + "', " + text_of(kind));
  return op;
}

// Joins after the steps. The result, the last rank to join, can be checked if all operations were waited for before.
void Player::join(int phase) {
  const Phase& its = program_.phases[static_cast<std::size_t>(phase)];
  Kind kind;
  kind.verb = HVD_JOIN;
  hvd_op* op = prepare("join", kind, 0, true);
  std::int32_t last = -1;
  hvd_start_arguments use = hvd_use_of(op, nullptr, &last);
  hvd_handle handle = 0;
  expect(HVD_OK, hvd_start(runtime_, &use, 1, &handle), "join");
  place_.does("waits for the others to join");
  expect(HVD_OK, hvd_wait(runtime_, handle, for_ever), "join");
  hvd_release(runtime_, handle);
  if (last < 0 || last >= program_.ranks()) complain("join says that the last was " + std::to_string(last));
  const auto most = std::ranges::max_element(its.join_after);
  bool is_certain = !its.joins_before_wait && std::ranges::count(its.join_after, *most) == 1 &&
                    std::ranges::any_of(its.uses, [](const Use& it) { return it.set == 0 && it.steps == ~0ull; });
  if (is_certain && last != most - its.join_after.begin())
    complain("join says that rank " + std::to_string(last) + " was the last; it was " +
             std::to_string(most - its.join_after.begin()));
}

void Player::change(const Change& change) {
  using What = Change::What;
  place_.does("changes the process sets");
  if (change.what == What::add) return add(change);
  if (change.what == What::remove) return remove(change);
  int id = -1;
  if (change.what == What::add_again) {
    std::vector<int> ranks = program_.sets[static_cast<std::size_t>(change.set)].ranks;
    expect(HVD_INVALID_ARGUMENT, hvd_add_process_set(runtime_, ranks.data(), ranks.size(), &id), "adding a set again");
    if (id != id_of(change.set)) complain("a set that is there already has another number");
  } else if (change.what == What::remove_unknown) {
    expect(HVD_INVALID_ARGUMENT, hvd_remove_process_set(runtime_, 9999), "removing a set that there is not");
  } else {
    int ranks[] = {rank_ == 0 ? 0 : 1};
    expect(HVD_MISMATCH, hvd_add_process_set(runtime_, ranks, 1, &id), "adding different sets");
  }
}

void Player::add(const Change& change) {
  std::vector<int> ranks = program_.sets[static_cast<std::size_t>(change.set)].ranks;
  std::ranges::reverse(ranks);
  int& id = ids_[static_cast<std::size_t>(change.set)];
  expect(HVD_OK, hvd_add_process_set(runtime_, ranks.data(), ranks.size(), &id), "adding a set");
  int mine = -2, size = -1;
  expect(HVD_OK, hvd_process_set(runtime_, id, &mine, &size, nullptr, 0), "asking for an added set");
  if (size != static_cast<int>(ranks.size()) || (mine >= 0) != is_member(change.set))
    complain("an added set of " + std::to_string(ranks.size()) + " ranks has " + std::to_string(size) +
             ", place of this rank " + std::to_string(mine));
}

// Starts an operation that not all members start. Returns 0 if the operation was refused.
hvd_handle Player::start_lonely(const std::string& name, int set_id, std::vector<float>& data) {
  Kind kind;
  kind.shape = {static_cast<std::int64_t>(data.size())};
  hvd_op* op = prepare(name, kind, set_id, false);
  hvd_start_arguments use = hvd_use_of(op, data.data(), data.data());
  hvd_handle handle = 0;
  if (hvd_start(runtime_, &use, 1, &handle) != HVD_OK) handle = 0;
  hvd_op_release(runtime_, op);
  return handle;
}

void Player::remove(const Change& change) {
  const std::vector<int>& ranks = program_.sets[static_cast<std::size_t>(change.set)].ranks;
  const int id = id_of(change.set);
  hvd_handle lonely = 0;
  std::vector<float> data(100);
  if (change.has_pending && ranks.size() > 1 && is_member(change.set) && rank_ != ranks.front()) {
    lonely = start_lonely("lonely", id, data);
    if (lonely == 0) complain(std::string("an operation in a set could not be started: ") + hvd_last_error());
  }
  expect(HVD_OK, hvd_remove_process_set(runtime_, id), "removing a set");
  if (lonely == 0) return;
  place_.does("waits for an operation of a removed set");
  expect(HVD_SHUT_DOWN, hvd_wait(runtime_, lonely, for_ever), "an operation of a removed set");
  hvd_release(runtime_, lonely);
}

void Player::meet() {
  Kind kind;
  kind.verb = HVD_BARRIER;
  hvd_start_arguments use = hvd_use_of(prepare("the end", kind, 0, true), nullptr, nullptr);
  hvd_handle handle = 0;
  place_.does("waits for all to come to the end");
  expect(HVD_OK, hvd_start(runtime_, &use, 1, &handle), "the barrier at the end");
  expect(HVD_OK, hvd_wait(runtime_, handle, for_ever), "the barrier at the end");
  hvd_release(runtime_, handle);
}

// Waits for an operation that rank 0 never starts. It ends with the runtime. False if the runtime had already ended.
bool Player::wait_in_vain(const std::string& name) {
  std::vector<float> data(100);
  hvd_handle lonely = start_lonely(name, 0, data);
  if (lonely == 0) return false;
  expect(HVD_SHUT_DOWN, hvd_wait(runtime_, lonely, for_ever), "an operation at the end");
  hvd_release(runtime_, lonely);
  return true;
}

// All ranks meet first, because a sudden end would make the unfinished operations of other ranks fail.
void Player::end() {
  place_.is_at(static_cast<int>(program_.phases.size()), 0);
  meet();
  place_.does("ends");
  if (program_.ranks() == 1 || rank_ == 0 || program_.ending == Ending::in_order) return;
  const int threads = program_.ending == Ending::while_threads_submit ? 3 : 1;
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread)
    running.emplace_back([this, thread] {
      for (int number = 0; wait_in_vain("never " + std::to_string(thread) + "." + std::to_string(number));) ++number;
    });
  if (Dice(program_.seed).of({rank_, 4}).one_in(2)) hvd_stop(runtime_);
  for (std::thread& thread : running) thread.join();
}

}  // namespace hvd::programs
