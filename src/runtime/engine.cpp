#include "runtime/engine.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "base/overloaded.hpp"
#include "base/panic.hpp"
#include "native/posix/processes/thread.hpp"
#include "native/posix/sockets/tcp_socket.hpp"
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

Departure::Settings departure_settings(const Engine::Parts& parts, std::function<std::string()> describe_work) {
  Departure::Settings settings;
  settings.me = parts.world.rank;
  settings.is_elastic = parts.config.elastic;
  // No host is noticed to be lost any earlier.
  settings.time_for_cause = std::max(milliseconds_of(parts.config.peer_timeout_s), posix::least_patience);
  settings.describe = [&world = parts.world](Rank rank) { return describe(world, rank); };
  Rank leader = parts.layout.node.rank_at(control::NodeBoard::leader);
  settings.describe_leader = [&world = parts.world, leader] {
    return describe(world, leader) + what_it_does(world, leader);
  };
  settings.describe_work = std::move(describe_work);
  return settings;
}

}  // namespace

Engine::Engine(Parts parts)
    : world_(parts.world),
      config_(parts.config),
      layout_(parts.layout),
      board_(parts.board),
      net_(parts.net),
      handles_(parts.handles),
      has_come_(std::move(parts.has_come)),
      observers_(std::move(parts.observers), [this] { wake(); }),
      spin_(parts.spin),
      stop_point_([this] { wake(); }),
      rank_{world_, config_, layout_, board_, counters_, observers_.all()},
      outbox_(board_, counters_),
      departure_(departure_settings(parts, [this] { return describe_work(); })),
      runner_(std::make_unique<Runner>(
          rank_, parts.teams, [this](const Request& request) { outbox_.send(request); },
          [this](Operation& operation, Sequence batch, const Error* error, Event end) {
            finished(operation, batch, error, end);
          })),
      follower_(rank_, {parts.operations, handles_, outbox_, *runner_, parts.callbacks}, parts.sets),
      stalls_(config_) {
  if (board_.me() != control::NodeBoard::leader) return;
  auto batches_in_flight = [this](ProcessSetId set, DeviceKind kind) { return runner_->batches_in_flight(set, kind); };
  leader_ = std::make_unique<Leader>(rank_, parts.net, parts.sets, std::move(batches_in_flight));
}

Engine::~Engine() {
  if (thread_.joinable()) thread_.join();
}

Status Engine::start(Deadline deadline) {
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

void Engine::run(Deadline start_deadline) {
  begin_to_call_callbacks();
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
    runner_->arm(departure_.has_log_ended() || (leader_ && leader_->linger_due()));
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
  if (check_for_end()) return true;
  news |= follow_departure();
  if (!departure_.has_ended()) news |= outbox_.send_waiting();
  return news;
}

// Tells the departure the facts that other threads and ranks have left. Returns true if the log must be executed first:
// all ranks may have agreed to end before a loss, so the log counts before the loss.
bool Engine::check_for_end() {
  if (leader_ && leader_->verdict()) departure_.leader_ends(*leader_->verdict());
  int lost = lost_rank_.load(std::memory_order_acquire);
  if (lost >= 0 || board_.has_lost()) {
    if (read_log()) return true;
    if (auto loss = board_.loss()) departure_.loss_announced(loss->rank, loss->why);
    else departure_.loss_noticed(Rank{lost});
  }
  departure_.work_moved(batch_moved_);
  if (departure_.has_log_ended() && runner_->is_idle()) departure_.work_done();
  if (stop_requested_.load(std::memory_order_acquire)) departure_.stop_requested(stop_reason_);
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
                 [&](const Departure::SendRequest& it) { outbox_.send(ShutdownRequest{it.reason}); },
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

// The rank is held back: the engine only sleeps, and watches for the program's own request to stop.
void Engine::hold_back() {
  posix::WaitWord& word = board_.wake_word(board_.me());
  std::uint32_t announced = word.announce();
  if (stop_requested_.load(std::memory_order_acquire)) departure_.stop_requested(stop_reason_);
  if (follow_departure()) return word.retract();
  word.sleep(announced, sleep_until(*departure_due_));
}

bool Engine::take_submissions() {
  const bool has_new_wait = has_new_wait_.load(std::memory_order_relaxed) && has_new_wait_.exchange(false);
  std::span<const Submission> submissions = inbox_.take();
  if (!submissions.empty()) {
    Clock::time_point now = Clock::now();
    stalls_.begun(now);
    follower_.take(submissions, now);
  }
  board_.announce_arrivals();
  if (has_new_wait) follower_.note_waits();
  return !submissions.empty() || has_new_wait;
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
    follower_.advance();
    auto record = decode_record(bytes, storage_);
    if (!record) panic(record.error().message);
    execute(*record);
  }
  if (news) board_.publish_position();
  return news;
}

void Engine::execute(const Record& record) {
  std::visit(Overloaded{
                 [&](const GiveRecord& it) { follower_.learn_slot(it); },
                 [&](const EvictRecord& it) { follower_.forget_slot(it.slot); },
                 [&](const BatchRecord& it) { follower_.queue_batch(it); },
                 [&](const FailRecord& it) { follower_.fail(it); },
                 [&](const JoinRecord& it) { follower_.take_note_of_join(it); },
                 [&](const AllJoinedRecord& it) { follower_.end_joins(it); },
                 [&](const AddSetRecord& it) { follower_.add_set(it); },
                 [&](const RemoveSetRecord& it) { follower_.remove_set(it.set); },
                 [&](const ShutdownRecord& it) { departure_.log_ended(it.by, it.reason, it.id); },
                 [&](const PublishedRecord& it) { runner_->published(it); },
                 [&](const StopPointRecord& it) {
                   stop_point_.take(it, follower_.records_read());
                   if (leader_) leader_->await_acks();
                 },
             },
             record);
}

// The runner calls it when an operation has ended for the host.
void Engine::finished(Operation& operation, Sequence batch, const Error* error, Event end) {
  has_finished_some_ = true;
  if (error == nullptr)
    for (Observer* observer : observers_.all()) observer->finished(operation, batch);
  follower_.settle(operation, error, end);
}

bool Engine::run_batches() {
  has_finished_some_ = false;
  bool news = runner_->step();
  if (news) batch_moved_ = Clock::now();
  if (has_finished_some_) handles_.announce();
  if (handles_.has_unended()) handles_.recycle_ended(has_come_);
  if (const Error* failure = runner_->failure()) departure_.batch_failed(*failure);
  return news;
}

void Engine::end(const Error& reason) {
  auto set_ended = [this](const Error& why) {
    std::lock_guard lock(ended_mutex_);
    ended_ = std::make_shared<const Error>(why);
  };
  set_ended(reason);
  lost_ends_ = runner_->unended();
  losses_.store(Losses::ending, std::memory_order_release);
  const std::string stuck = runner_->end(reason, Deadline::after(milliseconds_of(config_.peer_timeout_s)));
  Error told = reason;
  if (!stuck.empty()) {
    log::error(stuck);
    told.message += "; " + stuck;
    set_ended(told);
  }
  losses_.store(stuck.empty() ? Losses::over : Losses::stuck, std::memory_order_release);
  losses_.notify_all();
  inbox_.close();
  follower_.end(inbox_.take(), told);
}

Engine::Completeness Engine::completeness_of(const HandleCell& cell) const {
  if (losses_.load(std::memory_order_acquire) == Losses::none) return {};
  auto is_lost = [&](const EndOnDevice& end) {
    return std::ranges::any_of(lost_ends_, [&](const EndOnDevice& lost) {
      return lost.device == end.device && lost.event.token == end.event.token;
    });
  };
  if (std::ranges::none_of(cell.ends, is_lost)) return {};
  losses_.wait(Losses::ending, std::memory_order_acquire);  // callbacks are called only after it
  const std::shared_ptr<const Error> why = ended();
  return {Error(why->code,
                "the result is not complete, because it was still under way on a device when this "
                "rank's work ended: " +
                    why->message),
          losses_.load(std::memory_order_acquire) == Losses::over};
}

// Says which operation keeps this rank from the agreed end, and the rank that it waits for if that is known.
std::string Engine::describe_work() const {
  const Operation* oldest = nullptr;
  for (const Operation* operation : follower_.in_flight()) {
    if (!operation->scheduled) continue;
    if (Rank missing = runner_->waiting_for(*operation); missing.value >= 0)
      return "'" + operation->entry->name + "' waits for " + describe(world_, missing) + what_it_does(world_, missing);
    if (oldest == nullptr || operation->record < oldest->record) oldest = operation;
  }
  if (const auto issued = runner_->oldest_issued())
    return "'" + std::string(issued->batch.name) + "' did not end on " +
           devices::describe(issued->batch.kind, issued->batch.ordinal);
  return oldest == nullptr ? "its last batch did not end" : "'" + oldest->entry->name + "' did not end";
}

std::chrono::nanoseconds Engine::longest_sleep() const {
  // Nothing announces that a ring has room again. Therefore the engine looks after this time.
  if (outbox_.has_waiting() || (leader_ && leader_->has_to_look_again())) return std::chrono::milliseconds(1);
  std::chrono::nanoseconds sleep = stalls_.until_due(Clock::now());
  if (auto due = leader_ ? leader_->linger_due() : std::nullopt)
    sleep = earlier(sleep, std::max<Clock::duration>(*due - Clock::now(), Clock::duration::zero()));
  if (auto report = leader_ ? leader_->report_due() : std::nullopt) sleep = earlier(sleep, sleep_until(*report));
  if (auto due = runner_->connect_due()) sleep = earlier(sleep, sleep_until(*due));
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
  if (leader_) leader_->report_what_is_due(now);
  if (!stalls_.is_due(now)) return false;
  const Operation* oldest = nullptr;
  for (const Operation* operation : follower_.in_flight())
    if (oldest == nullptr || waits_since(*operation) < waits_since(*oldest)) oldest = operation;
  std::optional<Clock::time_point> since;
  if (oldest != nullptr) since = waits_since(*oldest);
  // An operation without a stream stays in flight while its batch is on the device.
  const std::optional<Runner::OldestIssued> issued = runner_->oldest_issued();
  const bool is_on_device = issued && (!since || issued->batch.since <= *since);
  if (is_on_device) since = issued->batch.since;
  StallWatch::Verdict verdict = stalls_.look(since, now);
  if (verdict == StallWatch::Verdict::fine || !since) return false;
  bool final = verdict == StallWatch::Verdict::end;
  double waited_s = std::chrono::duration<double>(stalls_.waited(*since, now)).count();
  if (is_on_device) report_stall_on_device(*issued, waited_s, final);
  else report_stall(*oldest, waited_s, final);
  return follow_departure();
}

void Engine::report_stall_on_device(const Runner::OldestIssued& issued, double waited_s, bool final) {
  const std::string device = devices::describe(issued.batch.kind, issued.batch.ordinal);
  StallRequest stall{waited_s,
                     issued.is_held_up_by_program ? world_.rank : Rank{-1},
                     {issued.batch.set, issued.batch.name},
                     final,
                     device};
  report_to_leader(stall);
  // The work on the device never ends, so that no agreement would end this rank. The root may still name the rank that
  // holds up the others: until it has had the time, they stay.
  if (final && (issued.is_held_up_by_program || std::exchange(has_told_final_stall_, true)) && !leader_)
    departure_.stalled(end_by_stall(stall_report(
        world_, {world_.rank, std::string(issued.batch.name), device, waited_s, issued.is_held_up_by_program, true},
        {})));
}

void Engine::report_stall(const Operation& operation, double waited_s, bool final) {
  StallRequest stall{waited_s, Rank{-1}, {operation.entry->set, operation.entry->name}, final, {}};
  if (operation.scheduled) stall.missing = runner_->waiting_for(operation);
  Rank leader = layout_.node.rank_at(control::NodeBoard::leader);
  if (leader_ || !is_halted(world_, leader)) {
    report_to_leader(stall);
    // A running batch can never end if one of its ranks does not answer. Each rank therefore ends by itself.
    if (!leader_ && final && stall.missing.value >= 0)
      departure_.stalled(
          end_by_stall(stall_report(world_, {{std::string(stall.name.name), {stall.missing}}}, stall.waited_s, true)));
  } else {
    std::string text = stall_report(world_, {{std::string(stall.name.name), {leader}}}, stall.waited_s, final);
    print_stall(text, final);
    if (final) departure_.stalled(end_by_stall(text));
  }
}

void Engine::report_to_leader(const StallRequest& stall) {
  if (!leader_) return outbox_.send(stall);
  leader_->on_stall(world_.rank, stall);
  if (leader_->verdict()) departure_.leader_ends(*leader_->verdict());
}

}  // namespace hvd::runtime
