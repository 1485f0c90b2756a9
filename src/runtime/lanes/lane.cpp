#include "runtime/lanes/lane.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/deadline.hpp"

namespace hvd::runtime {

namespace {

// A staged task runs many collectives over the host team. Each of them needs its own sequence number.
constexpr std::uint64_t places_for_chunks = 1 << 20;

}  // namespace

Lane::Lane(const RankContext& rank, std::unique_ptr<Teams> teams, Finished finished, Turnstile* turnstile,
           std::function<void()> report_end)
    : teams_(std::move(teams)),
      device_(teams_->device()),
      world_(rank.world),
      name_of_device_(devices::describe(device_)),
      counters_(rank.counters),
      observers_(rank.observers),
      finished_(std::move(finished)),
      turnstile_(turnstile),
      report_end_(std::move(report_end)),
      tensors_(teams_->all().group, device_),
      task_sequence_(is_of_host() ? 0 : places_for_chunks) {}

Progress Lane::connect() {
  if (is_connected_) return Progress::done;
  Progress progress = teams_->connect();
  if (progress == Progress::failed) failure_ = teams_->failure();
  if (progress == Progress::done && !is_of_host() && !stream_) {
    auto stream = device_.stream();
    if (!stream) return fail(stream.error()), Progress::failed;
    stream_ = std::move(*stream);
  }
  is_connected_ = progress == Progress::done;
  if (is_connected_) counters_.links.add(teams_->links() - std::exchange(links_, teams_->links()));
  return progress;
}

// The links of the world in host memory are made by the start, which has a limit of its own.
bool Lane::connect_in_time() {
  const Clock::time_point now = Clock::now();
  const bool begins = !connect_due_;
  if (begins) connect_due_ = now + milliseconds_of(teams_->config().start_timeout_s);
  const Progress progress = connect();
  if (begins && !is_of_host())
    for (Observer* observer : observers_) observer->connecting(queued_.front().sequence, teams_->transport());
  if (progress != Progress::pending) {
    connect_due_.reset();
  } else if (now >= *connect_due_) {
    connect_due_.reset();
    fail({ErrorCode::timeout, "the links for '" + queued_.front().operations.front()->entry->name + "'" +
                                  teams_->describe_pending() + " were not there in time; HOROVOD_START_TIMEOUT (" +
                                  std::to_string(static_cast<int>(teams_->config().start_timeout_s)) +
                                  " s) sets the time. Not made"});
  }
  return progress == Progress::done;
}

std::vector<Operation*>& Lane::queue(Sequence sequence) {
  if (idle_.empty()) idle_.emplace_back();
  queued_.splice(queued_.end(), idle_, idle_.begin());
  queued_.back().sequence = sequence;
  queued_.back().operations.clear();
  if (turnstile_ != nullptr) turnstile_->queue(sequence);
  return queued_.back().operations;
}

bool Lane::step() {
  if (failure_) return false;
  if (!issued_.empty() && end_issued()) return true;
  if (queued_.empty()) return false;
  if (!is_connected_ && !connect_in_time()) return failure_.has_value();
  if (!started_ && !may_begin()) return false;
  bool began = !started_;
  if (began) {
    started_ = true;
    holds_turnstile_ = turnstile_ != nullptr;
    counters_.batches.add();
    begin_batch();
  } else if (waiting_) {
    began = true;
    begin(*std::exchange(waiting_, std::nullopt), queued_.front().sequence);
  }
  if (refusal_) return refuse();
  if (failure_ || waiting_) return true;
  Progress progress = task_->step();
  if (progress == Progress::done && stage_ == Stage::sizes) {
    began = true;
    begin_data();
    if (refusal_) return refuse();
    if (failure_ || waiting_) return true;
    // At once: if this rank ends next, what the restart has queued on a device needs its event.
    progress = task_->step();
  }
  const bool has_got_on = follows_stages_ && follow_stages();
  const bool has_passed =
      stage_ == Stage::data && progress != Progress::failed && task_->has_launched() && pass_turnstile();
  switch (progress) {
    case Progress::pending: return began || has_passed || has_got_on || (!is_of_host() && is_there(task_->event()));
    case Progress::failed:
      // The batch's operations are settled later, when this rank ends, with the cause as their error. They are not
      // settled before the other ranks were told of the failure, because the program may leave as soon as it sees the
      // error.
      failure_ = task_->failure();
      return true;
    case Progress::issued: issue(); return true;
    case Progress::done: finish(nullptr); return true;
  }
  return true;
}

bool Lane::pass_turnstile() {
  if (!std::exchange(holds_turnstile_, false)) return false;
  turnstile_->pass(queued_.front().sequence);
  return true;
}

// Gives up all batches. A task waits by itself for its work on a device. If its batch was issued it does not, because
// that work may wait for the caller's streams. The end of an operation without a stream is told to nobody else, so this
// function waits for it.
void Lane::abandon() {
  const bool has_begun = std::exchange(started_, false);
  task_ = nullptr;
  waiting_.reset();
  plans_.clear();
  if (has_begun && !is_of_host() && stream_) {
    cut_off_ = &queued_.front();
    if (auto rest = device_.record({stream_.get()})) rest_ = *rest;
  }
  for (QueuedBatch& batch : issued_) {
    Naps naps;
    if (batch.operations.empty()) (void)device_.query(batch.end, &devices::nobody());
    while (!batch.operations.empty()) {
      auto there = device_.query(batch.end, nullptr);
      if (!there || *there) break;
      naps.take();
    }
  }
  idle_.splice(idle_.end(), issued_);
  idle_.splice(idle_.end(), queued_);
}

void Lane::report_rest() {
  if (cut_off_ == nullptr) return;
  for (Operation* operation : cut_off_->operations)
    if (operation->extras.stream) operation->extras.rest = rest_;
}

// True if the event that the task waits for has come since the task looked. If it has not come, the device wakes the
// engine at the event. Returns false for an event that is already over (token 0).
bool Lane::is_there(Event event) {
  if (event.token == 0) return false;
  auto there = device_.query(event, teams_->wake());
  return !there || *there;  // on an error the task finds out what failed
}

Rank Lane::waiting_for(const Operation& operation) const {
  if (!started_ || task_ == nullptr ||
      std::ranges::find(queued_.front().operations, &operation) == queued_.front().operations.end())
    return Rank{-1};
  Seat seat = task_->waiting_for();
  return seat.value < 0 ? Rank{-1} : teams_->all().group.rank_at(seat);
}

void Lane::begin_batch() {
  QueuedBatch& batch = queued_.front();
  if (!tensors_.needs_sizes(batch)) return begin_data();
  stage_ = Stage::sizes;
  begin(tensors_.sizes(batch), batch.sequence);
}

void Lane::begin_data() {
  QueuedBatch& batch = queued_.front();
  stage_ = Stage::data;
  auto move = tensors_.data(batch, {stream_.get()});
  if (move) return begin(*move, batch.sequence);
  if (move.error().code != ErrorCode::out_of_memory) {
    refusal_ = std::move(move.error());
    return;
  }
  // The other ranks go on with the exchange, so this rank cannot take part any more and must leave the job.
  failure_ = Error(ErrorCode::out_of_memory, move.error().message + " on " + describe(world_, world_.rank));
  finish(&*failure_);
}

void Lane::begin(const BatchOfTensors::Move& move, Sequence batch) {
  collectives::Team& team = stage_ == Stage::sizes ? teams_->host() : teams_->all();
  if (stage_ == Stage::sizes && waits_for_links(move)) return;
  auto algorithm = team.selector->choose(move.collective, team);
  if (!algorithm) {
    refusal_ = std::move(algorithm.error());
    return;
  }
  if ((*algorithm)->needs_links_of_host() && waits_for_links(move)) return;
  if (!is_of_host() && stage_ == Stage::data) wait_for_inputs(queued_.front());
  if (stage_ == Stage::data && !failure_)
    if (auto copied = tensors_.copy_rows({stream_.get()}); !copied) fail(copied.error());
  if (failure_) return;
  task_ = find_plan(move.collective, *algorithm, team);
  for (Observer* observer : observers_) {
    if (stage_ == Stage::sizes) observer->stage(batch, "EXCHANGE_SIZES");
    else observer->started(batch, teams_->transport(), (*algorithm)->name());
  }
  task_->rescale(move.collective.prescale, move.collective.postscale);
  task_->resize(move.sent, move.received);
  follows_stages_ = !is_of_host() && stage_ == Stage::data && std::ranges::any_of(observers_, &Observer::wants_stages);
  task_->note_stages(follows_stages_);
  queued_.front().stages.clear();
  task_->restart(move.in, move.out, Sequence{task_sequence_});
  task_sequence_ += is_of_host() ? 1 : places_for_chunks;
}

// Lets the batch wait for links of host memory if they are not there. All members make them here: they have chosen
// alike.
bool Lane::waits_for_links(const BatchOfTensors::Move& move) {
  if (is_of_host() || teams_->has_links_of_host()) return false;
  teams_->ask_for_links_of_host();
  is_connected_ = false;
  task_ = nullptr;
  waiting_ = move;
  return true;
}

Task* Lane::find_plan(const Collective& collective, const collectives::Algorithm* algorithm, collectives::Team& team) {
  Kind wanted{collective, algorithm};
  wanted.collective.prescale = wanted.collective.postscale = 1.0;  // the task is told its scales before every batch
  wanted.collective.stream = {};
  wanted.collective.count = 0;
  if (auto* known = plans_.find(wanted)) return known->get();
  counters_.plans.add();
  Collective planned = collective;
  planned.stream = {stream_.get()};
  return plans_.put(wanted, algorithm->plan(planned, team)).get();
}

std::size_t Lane::HashOfKind::operator()(const Kind& kind) const {
  const Collective& of = kind.collective;
  std::size_t all = static_cast<std::size_t>(of.device) << 24 | static_cast<std::size_t>(of.verb) << 16 |
                    static_cast<std::size_t>(of.dtype) << 8 | static_cast<std::size_t>(of.op);
  all = mix_hash(all, std::hash<Seat>{}(of.root));
  all = mix_hash(all, std::hash<const void*>{}(kind.algorithm));
  return all;
}

bool Lane::refuse() {
  Error error = *std::exchange(refusal_, std::nullopt);
  finish(&error);
  return true;
}

void Lane::finish(const Error* error) {
  pass_turnstile();
  started_ = false;
  // The batch leaves the queue first, because settling an operation may let its owner submit the next one.
  idle_.splice(idle_.end(), queued_, queued_.begin());
  QueuedBatch& batch = idle_.back();
  batch.copies = {};
  for (Operation* operation : batch.operations) finished_(*operation, batch.sequence, error, {});
  if (report_end_) report_end_();
}

void Lane::wait_for_inputs(QueuedBatch& batch) {
  batch.inputs.clear();
  for (const Operation* operation : batch.operations) {
    const Event ready = operation->extras.ready;
    if (ready.token == 0 || (!batch.inputs.empty() && batch.inputs.back().token == ready.token)) continue;
    batch.inputs.push_back(ready);
    if (auto waits = device_.wait({stream_.get()}, ready); !waits) return fail(waits.error());
  }
}

void Lane::issue() {
  pass_turnstile();
  started_ = false;
  issued_.splice(issued_.end(), queued_, queued_.begin());
  QueuedBatch& batch = issued_.back();
  batch.end = task_->event();
  batch.issued_at = Clock::now();
  batch.name.assign(batch.operations.front()->entry->name);
  batch.size = batch.operations.size();
  for (Observer* observer : observers_) observer->issued(batch.sequence, name_of_device_, batch.name);
  std::erase_if(batch.operations, [&](Operation* operation) {
    if (!operation->extras.stream || !teams_->config().completes_on_stream) return false;
    finished_(*operation, batch.sequence, nullptr, batch.end);
    return true;
  });
}

// Takes the stages that the task of the running batch has noted. Returns true if one has ended.
bool Lane::follow_stages() {
  QueuedBatch& batch = queued_.front();
  const bool is_known = batch.stages.has_begun();
  batch.stages.take(task_->stages());
  if (!batch.stages.has_begun()) return false;
  if (!is_known)
    for (Observer* observer : observers_)
      observer->stages_began(batch.sequence, name_of_device_, batch.operations.front()->entry->name,
                             batch.stages.began_at());
  return report_ended_stages(batch);
}

// Tells the observers of the stages that have ended. Returns true if one has.
bool Lane::report_ended_stages(QueuedBatch& batch) {
  const auto ended = batch.stages.look(device_);
  for (const auto& [stage, begin, end] : ended)
    for (Observer* observer : observers_) observer->stage_ended(batch.sequence, stage, begin, end);
  return !ended.empty();
}

// Ends the oldest issued batch if its event has come. Returns true if it, or a stage of it, has ended.
bool Lane::end_issued() {
  auto there = device_.query(issued_.front().end, nullptr);
  // After the end, so that no stage is missing when the batch is over.
  const bool has_got_on = report_ended_stages(issued_.front());
  if (!there) return fail(there.error()), true;
  if (!*there) return has_got_on;
  last_end_ = Clock::now();
  idle_.splice(idle_.end(), issued_, issued_.begin());
  QueuedBatch& batch = idle_.back();
  batch.copies = {};
  for (Observer* observer : observers_) observer->ended(batch.sequence);
  for (Operation* operation : batch.operations) finished_(*operation, batch.sequence, nullptr, {});
  if (report_end_) report_end_();
  return true;
}

std::optional<IssuedBatch> Lane::oldest_issued() const {
  if (issued_.empty()) return std::nullopt;
  const QueuedBatch& batch = issued_.front();
  return IssuedBatch{teams_->set(),  batch.name,        batch.size,
                     device_.kind(), device_.ordinal(), std::max(batch.issued_at, last_end_)};
}

bool Lane::is_held_up_by_program() const {
  return !issued_.empty() && std::ranges::any_of(issued_.front().inputs, [this](Event input) {
    auto there = device_.query(input, nullptr);
    return there && !*there;
  });
}

void Lane::add_unended(std::vector<EndOnDevice>& ends) const {
  for (const QueuedBatch& batch : issued_) ends.push_back({device_.kind(), {}, batch.end});
}

void Lane::arm(bool for_all) noexcept {
  teams_->arm();
  if (started_ && follows_stages_) queued_.front().stages.arm(device_, teams_->wake());
  if (issued_.empty()) return;
  const bool is_awaited = for_all || report_end_ || !observers_.empty() || (!queued_.empty() && is_full()) ||
                          std::ranges::any_of(issued_, [](const QueuedBatch& it) { return !it.operations.empty(); });
  if (!is_awaited) return;
  const QueuedBatch& oldest = issued_.front();
  (void)device_.query(oldest.end, teams_->wake());  // step() finds out what it says
  oldest.stages.arm(device_, teams_->wake());
}

// Handles a failure of the device. The other ranks of the batch learn of it from this rank.
void Lane::fail(const Error& error) {
  if (!failure_) failure_ = Error(error.code, error.message + " on " + describe(world_, world_.rank));
}

void Lane::close() {
  is_closed_ = true;
}

}  // namespace hvd::runtime
