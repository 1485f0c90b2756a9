#include "runtime/runner.hpp"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

namespace hvd::runtime {

namespace {

Segment segment(const void* data, std::int64_t count, DataType dtype) {
  return {{const_cast<void*>(data), count, dtype, {}}, {}};
}

}  // namespace

Runner::Runner(Teams& teams, const World& world, Counters& counters, const std::vector<Observer*>& observers,
               Finished finished)
    : teams_(teams),
      world_(world),
      counters_(counters),
      observers_(observers),
      finished_(std::move(finished)),
      ones_(static_cast<std::size_t>(world.size()), 1),
      rows_(static_cast<std::size_t>(world.size())) {}

std::vector<Operation*>& Runner::queue(Sequence sequence) {
  if (idle_.empty()) idle_.emplace_back();
  queued_.splice(queued_.end(), idle_, idle_.begin());
  queued_.back().sequence = sequence;
  queued_.back().operations.clear();
  return queued_.back().operations;
}

bool Runner::step() {
  if (queued_.empty() || failure_) return false;
  bool began = !started_;
  if (began) {
    started_ = true;
    counters_.batches.add();
    start(queued_.front());
    if (refusal_) return refuse();
  }
  switch (task_->step()) {
    case Progress::pending: return began;
    case Progress::failed:
      // Its operations are settled with the end of all, in the words of who knows the cause: not before others were told
      // of it, since a program may leave as soon as it hears.
      failure_ = task_->failure();
      return true;
    case Progress::done: break;
  }
  if (stage_ == Stage::sizes) {
    start_gather(queued_.front());
    return refusal_ ? refuse() : true;  // or failure_
  }
  finish(nullptr);
  return true;
}

void Runner::abandon() {
  idle_.splice(idle_.end(), queued_);
  started_ = false;
  task_ = nullptr;
  plans_.clear();
  gathers_.clear();
}

void Runner::start(Batch& batch) {
  const Operation& first = *batch.operations.front();
  const Signature& kind = first.signature;
  if (kind.verb == Verb::allgather) return start_sizes(batch);
  stage_ = Stage::data;
  in_.clear();
  out_.clear();
  Collective collective;
  collective.verb = kind.verb;
  collective.dtype = kind.dtype;
  collective.op = kind.op;
  collective.prescale = kind.prescale;
  collective.postscale = kind.postscale;
  collective.root = Seat{kind.root.value};
  collective.device = kind.device;
  if (kind.verb != Verb::barrier) {
    for (const Operation* operation : batch.operations) {
      in_.push_back(segment(operation->submission.input, operation->count, kind.dtype));
      out_.push_back(segment(operation->submission.output, operation->count, kind.dtype));
      collective.count += operation->count;
    }
  }
  begin(collective, batch.sequence);
}

void Runner::start_sizes(Batch& batch) {
  stage_ = Stage::sizes;
  my_rows_ = batch.operations.front()->submission.first_dimension;
  in_.assign(1, segment(&my_rows_, 1, DataType::i64));
  out_.assign(1, segment(rows_.data(), world_.size(), DataType::i64));
  Collective collective;
  collective.verb = Verb::allgather;
  collective.dtype = DataType::i64;
  collective.count = world_.size();
  collective.counts = ones_;
  begin(collective, batch.sequence);
}

void Runner::start_gather(Batch& batch) {
  stage_ = Stage::data;
  Operation& operation = *batch.operations.front();
  const Signature& kind = operation.signature;
  counts_.clear();
  std::int64_t all_rows = 0;
  bool is_too_large = false;
  for (std::int64_t rows : rows_) {
    is_too_large = __builtin_add_overflow(all_rows, rows, &all_rows) || !kind.bytes(rows) || is_too_large;
    counts_.push_back(is_too_large ? 0 : rows * operation.count);
  }
  // All ranks have the same numbers before them.
  if (is_too_large || !kind.bytes(all_rows)) {
    refusal_ = Error(ErrorCode::invalid_argument,
                     "the result of allgather '" + operation.entry->name + "' has more bytes than 64 bits can count");
    return;
  }
  KeptResult result;
  result.shape = kind.shape;
  result.shape[0] = all_rows;
  Collective collective;
  collective.verb = Verb::allgather;
  collective.dtype = kind.dtype;
  collective.device = kind.device;
  collective.count = all_rows * operation.count;
  collective.counts = counts_;
  result.bytes = static_cast<std::size_t>(collective.count) * size_of(kind.dtype);
  result.data.reset(new (std::nothrow) std::byte[std::max<std::size_t>(result.bytes, 1)]);
  if (!result.data) {
    // The others go on into the exchange: there is no way back for this rank but to leave the job.
    failure_ = Error(ErrorCode::out_of_memory, "no memory for the " + std::to_string(result.bytes) +
                                                   " bytes of the result of allgather '" + operation.entry->name +
                                                   "' on " + describe(world_, world_.rank));
    finish(&*failure_);
    return;
  }
  const Submission& submission = operation.submission;
  in_.assign(1, segment(submission.input, submission.first_dimension * operation.count, kind.dtype));
  out_.assign(1, segment(result.data.get(), collective.count, kind.dtype));
  auto& results = submission.handle->results;
  if (results.size() <= submission.index) results.resize(submission.index + 1);
  results[submission.index] = std::move(result);
  begin(collective, batch.sequence);
}

void Runner::begin(const Collective& collective, Sequence batch) {
  auto algorithm = teams_.choose(collective, teams_.world());
  if (!algorithm) {
    refusal_ = std::move(algorithm.error());
    return;
  }
  algorithm_name_ = (*algorithm)->name();
  task_ = find_plan(collective, *algorithm);
  for (Observer* observer : observers_) {
    if (stage_ == Stage::sizes) observer->stage(batch, "EXCHANGE_SIZES");
    else observer->started(batch, teams_.transport(), algorithm_name_);
  }
  task_->rescale(collective.prescale, collective.postscale);
  task_->restart(in_, out_, Sequence{task_sequence_++});
}

Task* Runner::find_plan(const Collective& collective, const collectives::Algorithm* algorithm) {
  wanted_.verb = collective.verb;
  wanted_.dtype = collective.dtype;
  wanted_.op = collective.op;
  wanted_.root = collective.root;
  wanted_.algorithm = algorithm;
  wanted_.counts.assign(collective.counts.begin(), collective.counts.end());
  Plans& plans = wanted_.counts.empty() ? plans_ : gathers_;
  if (auto* known = plans.find(wanted_)) return known->get();
  counters_.plans.add();
  return plans.put(wanted_, algorithm->plan(collective, teams_.world())).get();
}

std::size_t Runner::HashOfKind::operator()(const Kind& kind) const {
  std::size_t all = static_cast<std::size_t>(kind.verb) << 16 | static_cast<std::size_t>(kind.dtype) << 8 |
                    static_cast<std::size_t>(kind.op);
  all = mix_hash(all, std::hash<Seat>{}(kind.root));
  all = mix_hash(all, std::hash<const void*>{}(kind.algorithm));
  for (std::int64_t count : kind.counts) all = mix_hash(all, static_cast<std::size_t>(count));
  return all;
}

bool Runner::refuse() {
  Error error = *std::exchange(refusal_, std::nullopt);
  finish(&error);
  return true;
}

void Runner::finish(const Error* error) {
  started_ = false;
  // Off the queue first: settling an operation may let its owner submit the next one.
  idle_.splice(idle_.end(), queued_, queued_.begin());
  Batch& batch = idle_.back();
  for (Operation* operation : batch.operations) finished_(*operation, batch.sequence, error);
}

}  // namespace hvd::runtime
