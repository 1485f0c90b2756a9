#include "runtime/engine.hpp"

#include <pthread.h>

#include <csignal>

namespace hvd::runtime {

namespace {

// How long a peer's engine may take to answer; a program may take as long as it likes.
constexpr auto engine_deadline = std::chrono::seconds(10);

template <class... Parts>
struct Overloaded : Parts... {
  using Parts::operator()...;
};
template <class... Parts>
Overloaded(Parts...) -> Overloaded<Parts...>;

}  // namespace

Engine::Engine(Parts parts)
    : world_(*parts.world),
      config_(*parts.config),
      board_(*parts.board),
      teams_(*parts.teams),
      operations_(*parts.operations),
      handles_(*parts.handles),
      observers_(std::move(parts.observers)),
      spin_(parts.spin),
      stalls_(*parts.config) {
  runner_ = std::make_unique<Runner>(teams_, world_, counters_, observers_,
                                     [this](Operation& operation, Sequence batch, const Error* error) {
                                       if (error == nullptr)
                                         for (Observer* observer : observers_)
                                           observer->finished(operation.entry->name, batch);
                                       settle(operation, error);
                                     });
  if (board_.me() != transport::NodeBoard::leader) return;
  Coordinator::Settings settings;
  settings.ranks = world_.size();
  settings.slots = board_.slots();
  // Some slots always stay free for ops that are not cached.
  settings.cache_capacity = std::min<std::int64_t>(config_.cache_capacity, board_.slots() / 2 + board_.slots() / 4);
  settings.fusion_threshold_bytes = config_.fusion_threshold_bytes;
  settings.describe = [this](Rank rank) { return describe(world_, rank); };
  coordinator_ = std::make_unique<Coordinator>(std::move(settings), [this](const Record& record) { append(record); });
}

Engine::~Engine() {
  if (thread_.joinable()) thread_.join();
}

Status Engine::start(Deadline deadline) {
  slots_.resize(static_cast<std::size_t>(board_.slots()));
  // Signals are the program's: none is handled on our thread, which inherits the mask.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, deadline] { run(deadline); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_setname_np(thread_.native_handle(), "hvd-engine");
  started_.wait(0);
  if (auto reason = ended(); reason && started_.load() == 2) return *reason;
  return {};
}

void Engine::stop() {
  stop_requested_.store(true, std::memory_order_release);
  wake();
  if (thread_.joinable()) thread_.join();
}

void Engine::report_lost(Rank peer) {
  if (board_.has_left(Seat{peer.value})) return;
  int none = -1;
  lost_rank_.compare_exchange_strong(none, peer.value);
  wake();
}

std::shared_ptr<const Error> Engine::ended() const {
  std::lock_guard lock(ended_mutex_);
  return ended_;
}

void Engine::run(Deadline start_deadline) {
  posix::WaitWord& word = board_.wake_word(board_.me());
  connect(start_deadline);
  started_.store(phase_ == Phase::ended ? 2 : 1);
  started_.notify_all();
  Patience patience(spin_);
  while (phase_ != Phase::ended) {
    if (progress()) {
      patience.found_work();
      continue;
    }
    if (patience.look_again()) continue;
    std::uint32_t announced = word.announce();
    if (progress()) {
      word.retract();
      patience.found_work();
      continue;
    }
    watch_for_stalls();
    if (phase_ == Phase::ended) {
      word.retract();
      break;
    }
    counters_.engine_sleeps.add();
    word.sleep(announced, longest_sleep());
    patience.found_work();
  }
}

void Engine::connect(Deadline deadline) {
  Patience patience(spin_);
  posix::WaitWord& word = board_.wake_word(board_.me());
  while (phase_ == Phase::connecting) {
    switch (teams_.connect(*this)) {
      case Progress::done: phase_ = Phase::running; return;
      case Progress::failed: end(teams_.failure()); return;
      case Progress::pending: break;
    }
    if (progress()) continue;
    if (deadline.passed()) {
      end({ErrorCode::timeout,
           "the links between the ranks were not there in time; is a rank stuck before hvd.init()? "
           "HOROVOD_START_TIMEOUT sets the time"});
      return;
    }
    if (patience.look_again()) continue;
    word.sleep(word.announce(), std::chrono::milliseconds(1));  // a start is short: no need to be woken
  }
}

// One look at everything that could have changed. True if anything had.
bool Engine::progress() {
  bool news = take_submissions();
  if (coordinator_) news |= lead();
  news |= read_log();
  if (phase_ == Phase::running) news |= run_batches();
  if (phase_ != Phase::ended) {
    if (int lost = lost_rank_.load(std::memory_order_acquire); lost >= 0 && !read_log()) {
      end({ErrorCode::peer_lost, describe(world_, Rank{lost}) +
                                     " ended or was killed without hvd.shutdown(); what was in flight with it is lost. "
                                     "Look at that rank's own output for the cause"});
      return true;
    }
    if (ending_ && runner_->batches_in_flight() == 0) {
      board_.leave();
      end(*ending_);
      return true;
    }
    if (stop_requested_.load(std::memory_order_acquire) && !stop_sent_) {
      stop_sent_ = true;
      stop_deadline_ = Deadline::after(engine_deadline);
      send(ShutdownRequest{});
      news = true;
    }
    news |= send_waiting();
  }
  if (news) stalls_.note(true, !in_flight_.empty());
  return news;
}

bool Engine::take_submissions() {
  std::span<const Submission> submissions = inbox_.take();
  for (const Submission& submission : submissions) {
    Operation& operation = *submission.operation;
    operation.submission = submission;
    operation.arrived = operation.scheduled = false;
    operation.entry->submitted = &operation;
    operation.place = in_flight_.size();
    in_flight_.push_back(&operation);
    counters_.submissions.add();
    for (Observer* observer : observers_) observer->submitted(operation.entry->name, operation.signature);
    introduce(operation);
  }
  board_.announce_arrivals();
  return !submissions.empty();
}

// Tells the others that the op is here: by a bit if they know its slot, by a ballot otherwise.
void Engine::introduce(Operation& operation) {
  NameEntry& entry = *operation.entry;
  if (entry.slot.value >= 0 && entry.slot_operation == &operation) {
    operation.arrived = true;
    board_.arrive(entry.slot);
  } else {
    send(OpRequest{entry.name, operation.signature});
  }
}

// The writer's part: hears ballots and arrivals, decides, appends to the log.
bool Engine::lead() {
  bool news = append_waiting();
  if (!unlogged_.empty()) return news;  // the log is full; more decisions would only pile up
  // Read before the ring is drained: what was pushed by somebody who has since read an eviction is still ignored.
  std::uint64_t read_by_all = board_.records_read_by_all();
  Seat from;
  ConstBytes bytes;
  while (board_.take_request(from, bytes)) {
    news = true;
    auto request = decode_request(bytes);
    if (!request) panic(request.error().message);
    Rank rank{from.value};
    std::visit(Overloaded{[&](const OpRequest& it) {
                            for (Observer* observer : observers_) observer->ready(it.name, rank);
                            coordinator_->ballot(rank, it.name, it.signature);
                          },
                          [&](const ShutdownRequest& it) { coordinator_->shut_down(rank, it.reason); },
                          [&](const PublishRequest& it) { coordinator_->publish(rank, it.key, it.value); },
                          [&](const StallRequest& it) { hear_of_stall(it); }},
               *request);
  }
  SlotId slot;
  while (board_.take_completed(slot)) {
    news = true;
    coordinator_->all_arrived(slot);
  }
  coordinator_->read_by_all(read_by_all);
  coordinator_->schedule(runner_->batches_in_flight());
  return news;
}

bool Engine::read_log() {
  bool news = false;
  ConstBytes bytes;
  while (phase_ != Phase::ended && !ending_ && board_.read(bytes)) {
    news = true;
    counters_.log_records.add();
    counters_.log_bytes.add(static_cast<std::int64_t>(bytes.size()));
    auto record = decode_record(bytes, batch_slots_);
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
                 [&](const FailRecord& it) {
                   Error error{ErrorCode::mismatch, std::string(it.message)};
                   NameEntry* entry = operations_.find(it.name);
                   if (entry != nullptr && entry->submitted != nullptr) settle(*entry->submitted, &error);
                   handles_.announce();
                 },
                 [&](const ShutdownRecord& it) { agree_to_end(it); },
                 [&](const PublishedRecord& it) {
                   published_[{it.by.value, std::string(it.key)}] = Buffer(it.value.begin(), it.value.end());
                 },
             },
             record);
}

void Engine::agree_to_end(const ShutdownRecord& record) {
  std::string by = record.by == world_.rank ? "this rank" : describe(world_, record.by);
  std::string why = record.reason.empty() ? "" : ": " + std::string(record.reason);
  ending_ =
      Error{ErrorCode::shut_down, "Horovod has been shut down by " + by + why +
                                      ". An operation that not all ranks had submitted before cannot be carried out; "
                                      "hvd.shutdown() and hvd.init() start anew"};
}

void Engine::learn_slot(const GiveRecord& record) {
  NameEntry* entry = operations_.find(record.name);
  if (entry == nullptr || entry->submitted == nullptr) panic("a slot was given to an op that this rank did not submit");
  entry->slot = record.slot;
  entry->slot_operation = entry->submitted;
  slots_[static_cast<std::size_t>(record.slot.value)] = entry;
}

void Engine::forget_slot(SlotId slot) {
  NameEntry& entry = *std::exchange(slots_[static_cast<std::size_t>(slot.value)], nullptr);
  entry.slot = SlotId{-1};
  entry.slot_operation = nullptr;
  if (entry.submitted == nullptr || !entry.submitted->arrived || entry.submitted->scheduled) return;
  entry.submitted->arrived = false;
  board_.withdraw(slot);
  board_.announce_arrivals();
  introduce(*entry.submitted);
}

void Engine::queue_batch(const BatchRecord& record) {
  std::vector<Operation*>& batch = runner_->queue(record.sequence);
  for (SlotId slot : record.slots) {
    NameEntry* entry = slots_[static_cast<std::size_t>(slot.value)];
    Operation& operation = *entry->submitted;
    operation.scheduled = true;
    batch.push_back(&operation);
    for (Observer* observer : observers_) observer->agreed(entry->name, record.sequence);
    // The writer forgets such a slot at once, and so do we.
    if (operation.signature.transient || config_.cache_capacity <= 0) {
      slots_[static_cast<std::size_t>(slot.value)] = nullptr;
      entry->slot = SlotId{-1};
      entry->slot_operation = nullptr;
    }
  }
}

bool Engine::run_batches() {
  int before = runner_->batches_in_flight();
  bool news = runner_->step();
  if (runner_->batches_in_flight() < before) handles_.announce();
  if (const Error* failure = runner_->failure()) {
    end(*failure);
    return true;
  }
  return news;
}

void Engine::settle(Operation& operation, const Error* error) {
  if (error != nullptr)
    for (Observer* observer : observers_) observer->failed(operation.entry->name, *error);
  in_flight_[operation.place] = in_flight_.back();
  in_flight_[operation.place]->place = operation.place;
  in_flight_.pop_back();
  operation.entry->submitted = nullptr;
  if (error == nullptr && operation.when_done) operation.when_done();
  HandleCell& handle = *operation.submission.handle;
  operation.entry->in_flight.store(false, std::memory_order_release);
  handles_.settle(handle, error);  // the operation may be gone after this
}

void Engine::end(const Error& reason) {
  phase_ = Phase::ended;
  {
    std::lock_guard lock(ended_mutex_);
    ended_ = std::make_shared<const Error>(reason);
  }
  teams_.abort(reason);
  runner_->abandon();
  inbox_.close();
  take_last_submissions();
  while (!in_flight_.empty()) settle(*in_flight_.back(), &reason);
  handles_.announce();
}

// Submitted, but too late: only to be settled.
void Engine::take_last_submissions() {
  for (const Submission& submission : inbox_.take()) {
    Operation& operation = *submission.operation;
    operation.submission = submission;
    operation.place = in_flight_.size();
    in_flight_.push_back(&operation);
  }
}

void Engine::send(const Request& request) {
  encode(request, scratch_);
  counters_.requests_sent.add();
  if (!unsent_.empty() || !board_.send_request(scratch_)) unsent_.push_back(scratch_);
}

bool Engine::send_waiting() {
  bool news = false;
  while (!unsent_.empty() && board_.send_request(unsent_.front())) {
    unsent_.pop_front();
    news = true;
  }
  return news;
}

void Engine::append(const Record& record) {
  encode(record, scratch_);
  if (!unlogged_.empty() || !board_.append(scratch_)) unlogged_.push_back(scratch_);
}

bool Engine::append_waiting() {
  bool news = false;
  while (!unlogged_.empty() && board_.append(unlogged_.front())) {
    unlogged_.pop_front();
    news = true;
  }
  return news;
}

std::chrono::nanoseconds Engine::longest_sleep() const {
  // Room in a ring is not announced: look for it.
  if (!unsent_.empty() || !unlogged_.empty()) return std::chrono::milliseconds(1);
  std::chrono::nanoseconds sleep = stalls_.until_due();
  if (!stop_sent_) return sleep;
  std::chrono::nanoseconds until_stop = stop_deadline_.left() + std::chrono::milliseconds(1);
  return sleep == posix::WaitWord::forever ? until_stop : std::min(sleep, until_stop);
}

void Engine::watch_for_stalls() {
  constexpr Rank writer{0};
  if (stop_sent_ && stop_deadline_.passed()) {
    end({ErrorCode::timeout,
         describe(world_, writer) + " did not answer the wish to shut down within 10 s; this rank left alone"});
    return;
  }
  stalls_.note(false, !in_flight_.empty());
  bool final = stalls_.shutdown_due();
  if (!final && !stalls_.report_due()) return;
  StallRequest stall{stalls_.waited_s(), Rank{-1}, in_flight_.front()->entry->name, final};
  if (Seat seat = runner_->waiting_for(); seat.value >= 0) stall.missing = teams_.world().group.rank_at(seat);
  if (coordinator_) {
    board_.look_at_all_slots();
    hear_of_stall(stall);
  } else if (!is_halted(world_, writer)) {
    send(stall);
    // A batch under way with a rank that does not answer can never end: each rank leaves it by itself.
    if (final && stall.missing.value >= 0)
      end({ErrorCode::shut_down,
           "Horovod has been shut down: " +
               stall_report(world_, {{std::string(stall.name), {stall.missing}}}, stall.waited_s, true)});
  } else {
    std::string text = stall_report(world_, {{std::string(stall.name), {writer}}}, stall.waited_s, final);
    final ? log::error(text) : log::warning(text);
    if (final) end({ErrorCode::shut_down, "Horovod has been shut down: " + text});
  }
}

// The writer's part: one report for all who wait.
void Engine::hear_of_stall(const StallRequest& stall) {
  auto check_time = std::chrono::duration<double>(config_.stall_check_time_s);
  bool recent = last_stall_report_ != Clock::time_point{} && Clock::now() - last_stall_report_ < check_time / 2;
  if (recent && !stall.final) return;
  std::vector<Rank> halted = halted_on_my_node(world_);
  std::vector<StalledName> stalled = find_stalled();
  // In a batch ranks wait for each other in chains: one that cannot move at all is named rather than the next in line.
  if (stall.missing.value >= 0)
    stalled.push_back({std::string(stall.name), halted.empty() ? std::vector{stall.missing} : halted});
  if (stalled.empty()) return;  // it has resolved itself
  last_stall_report_ = Clock::now();
  std::string text = stall_report(world_, stalled, stall.waited_s, stall.final);
  stall.final ? log::error(text) : log::warning(text);
  if (!stall.final) return;
  if (stall.missing.value >= 0) end({ErrorCode::shut_down, "Horovod has been shut down: " + text});
  else coordinator_->shut_down(world_.rank, text);
}

std::vector<StalledName> Engine::find_stalled() const {
  std::vector<StalledName> stalled;
  for (Coordinator::Waiting& waiting : coordinator_->waiting())
    stalled.push_back({std::move(waiting.name), std::move(waiting.missing)});
  coordinator_->visit_slots([&](SlotId slot, const std::string& name) {
    std::vector<Rank> missing;
    for (Seat seat : board_.missing_at(slot)) missing.push_back(Rank{seat.value});
    bool is_wanted = static_cast<int>(missing.size()) < world_.size();
    if (is_wanted && !missing.empty()) stalled.push_back({name, std::move(missing)});
  });
  return stalled;
}

Status Engine::put(std::string_view key, ConstBytes value) {
  send(PublishRequest{key, value});
  return {};
}

Result<bool> Engine::get(Rank from, std::string_view key, Buffer& value) {
  auto found = published_.find(std::make_pair(from.value, std::string(key)));
  if (found == published_.end()) return false;
  value = found->second;
  return true;
}

}  // namespace hvd::runtime
