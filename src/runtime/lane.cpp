#include "runtime/lane.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace hvd::runtime {

Lane::Lane(Parts parts)
    : teams_(std::move(parts.teams)),
      exchange_(std::move(parts.exchange)),
      world_(*parts.world),
      counters_(*parts.counters),
      observers_(*parts.observers),
      finished_(std::move(parts.finished)),
      tensors_(teams_->all().group) {}

Progress Lane::connect() {
  if (is_connected_) return Progress::done;
  Progress progress = teams_->connect(*exchange_);
  if (progress == Progress::failed) failure_ = teams_->failure();
  is_connected_ = progress == Progress::done;
  if (is_connected_) exchange_->end();
  return progress;
}

std::vector<Operation*>& Lane::queue(Sequence sequence) {
  if (idle_.empty()) idle_.emplace_back();
  queued_.splice(queued_.end(), idle_, idle_.begin());
  queued_.back().sequence = sequence;
  queued_.back().operations.clear();
  return queued_.back().operations;
}

bool Lane::step() {
  if (queued_.empty() || failure_) return false;
  if (!is_connected_ && connect() != Progress::done) return failure_.has_value();
  bool began = !started_;
  if (began) {
    started_ = true;
    counters_.batches.add();
    begin_batch();
    if (refusal_) return refuse();
    if (failure_) return true;
  }
  switch (task_->step()) {
    case Progress::pending: return began;
    case Progress::failed:
      // Its operations are settled with the end of all, in the words of who knows the cause: not before others were
      // told of it, since a program may leave as soon as it hears.
      failure_ = task_->failure();
      return true;
    case Progress::done: break;
  }
  if (stage_ == Stage::sizes) {
    begin_data();
    return refusal_ ? refuse() : true;  // or failure_
  }
  finish(nullptr);
  return true;
}

void Lane::abandon() {
  idle_.splice(idle_.end(), queued_);
  started_ = false;
  task_ = nullptr;
  plans_.clear();
  plans_by_seat_.clear();
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
  auto move = tensors_.data(batch);
  if (move) return begin(*move, batch.sequence);
  if (move.error().code != ErrorCode::out_of_memory) {
    refusal_ = std::move(move.error());
    return;
  }
  // The others go on into the exchange: there is no way back for this rank but to leave the job.
  failure_ = Error(ErrorCode::out_of_memory, move.error().message + " on " + describe(world_, world_.rank));
  finish(&*failure_);
}

void Lane::begin(const BatchOfTensors::Move& move, Sequence batch) {
  auto algorithm = teams_->choose(move.collective);
  if (!algorithm) {
    refusal_ = std::move(algorithm.error());
    return;
  }
  task_ = find_plan(move.collective, *algorithm);
  for (Observer* observer : observers_) {
    if (stage_ == Stage::sizes) observer->stage(batch, "EXCHANGE_SIZES");
    else observer->started(batch, teams_->transport(), (*algorithm)->name());
  }
  task_->rescale(move.collective.prescale, move.collective.postscale);
  if (!move.sent.empty()) task_->resize(move.sent, move.received);
  task_->restart(move.in, move.out, Sequence{task_sequence_++});
}

Task* Lane::find_plan(const Collective& collective, const collectives::Algorithm* algorithm) {
  wanted_.verb = collective.verb;
  wanted_.dtype = collective.dtype;
  wanted_.op = collective.op;
  wanted_.root = collective.root;
  wanted_.algorithm = algorithm;
  wanted_.counts.assign(collective.counts.begin(), collective.counts.end());
  Plans& plans = wanted_.counts.empty() ? plans_ : plans_by_seat_;
  if (auto* known = plans.find(wanted_)) return known->get();
  counters_.plans.add();
  return plans.put(wanted_, algorithm->plan(collective, teams_->all())).get();
}

std::size_t Lane::HashOfKind::operator()(const Kind& kind) const {
  std::size_t all = static_cast<std::size_t>(kind.verb) << 16 | static_cast<std::size_t>(kind.dtype) << 8 |
                    static_cast<std::size_t>(kind.op);
  all = mix_hash(all, std::hash<Seat>{}(kind.root));
  all = mix_hash(all, std::hash<const void*>{}(kind.algorithm));
  for (std::int64_t count : kind.counts) all = mix_hash(all, static_cast<std::size_t>(count));
  return all;
}

bool Lane::refuse() {
  Error error = *std::exchange(refusal_, std::nullopt);
  finish(&error);
  return true;
}

void Lane::finish(const Error* error) {
  started_ = false;
  // Off the queue first: settling an operation may let its owner submit the next one.
  idle_.splice(idle_.end(), queued_, queued_.begin());
  QueuedBatch& batch = idle_.back();
  for (Operation* operation : batch.operations) finished_(*operation, batch.sequence, error);
}

void Lane::close() {
  is_closed_ = true;
}

}  // namespace hvd::runtime
