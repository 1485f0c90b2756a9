#include "runtime/lanes/batch.hpp"

#include <numeric>
#include <string>

#include "transport/transport.hpp"

namespace hvd::runtime {

namespace {

void* ask(const Allocate& allocate, const KeptResult& result) {
  try {
    return allocate.function(allocate.context, static_cast<int>(result.shape.size()), result.shape.data(),
                             result.bytes);
  } catch (...) {  // C++ functions of the program may throw std::bad_alloc, which nobody here can pass on
    return nullptr;
  }
}

}  // namespace

BatchOfTensors::BatchOfTensors(const Group& group, devices::Device& device)
    : group_(group), device_(device), ones_(static_cast<std::size_t>(group.size()), 1) {}

bool BatchOfTensors::needs_sizes(const QueuedBatch& batch) const {
  return batch.operations.front()->signature.row().sizes != VerbRow::Sizes::nothing;
}

void BatchOfTensors::add(std::vector<Segment>& list, const void* data, std::int64_t count) {
  if (count > 0) list.push_back({{const_cast<void*>(data), count, dtype_}});
}

BatchOfTensors::Move BatchOfTensors::sizes(const QueuedBatch& batch) {
  bool is_by_seat = batch.operations.front()->signature.row().sizes == VerbRow::Sizes::splits;
  mine_.clear();
  if (is_by_seat) take_splits(*batch.operations.front());
  else
    for (const Operation* operation : batch.operations) mine_.push_back(operation->submission.first_dimension);
  theirs_.resize(is_by_seat ? mine_.size() : mine_.size() * static_cast<std::size_t>(group_.size()));
  dtype_ = DataType::i64;
  in_.clear();
  out_.clear();
  add(in_, mine_.data(), static_cast<std::int64_t>(mine_.size()));
  add(out_, theirs_.data(), static_cast<std::int64_t>(theirs_.size()));
  Collective collective;
  collective.verb = is_by_seat ? Verb::alltoall : Verb::allgather;
  collective.dtype = dtype_;
  collective.count = static_cast<std::int64_t>(theirs_.size());
  if (is_by_seat) return {collective, in_, out_, ones_, ones_};
  return {collective, in_, out_, {}, {}};
}

// Takes the rows for each seat that the caller gave. Without them every seat gets an equal part.
void BatchOfTensors::take_splits(const Operation& operation) {
  const std::vector<std::int64_t>& splits = operation.extras.splits;
  if (!splits.empty()) mine_.assign(splits.begin(), splits.end());
  else mine_.assign(ones_.size(), operation.submission.first_dimension / group_.size());
}

Result<BatchOfTensors::Move> BatchOfTensors::data(QueuedBatch& batch, Stream stream) {
  const Signature& kind = batch.operations.front()->signature;
  dtype_ = kind.dtype;
  in_.clear();
  out_.clear();
  sent_.clear();
  received_.clear();
  copies_.clear();
  collective_ = {};
  collective_.verb = kind.verb;
  collective_.dtype = kind.dtype;
  collective_.op = kind.op;
  collective_.prescale = kind.prescale;
  collective_.postscale = kind.postscale;
  collective_.device = kind.device;
  if (kind.row().has_root()) collective_.root = group_.seat_of(kind.root);
  switch (kind.row().outcome) {
    case VerbRow::Outcome::none: break;
    case VerbRow::Outcome::as_input: add_as_they_are(batch); break;
    case VerbRow::Outcome::share: {
      for (Operation* operation : batch.operations)
        if (operation->submission.output == nullptr && operation->submission.handle != nullptr) {
          auto share = transport::share_of(operation->signature.shape[0], group_.me, group_.size());
          auto kept = keep_result(*operation, share.count());
          if (!kept) return kept.error();
          operation->submission.output = *kept;
        }
      HVD_RETURN_IF_ERROR(deal_out_rows(batch, stream));
      break;
    }
    case VerbRow::Outcome::unknown:
      if (kind.row().sizes == VerbRow::Sizes::splits) {
        HVD_RETURN_IF_ERROR(exchange_rows(*batch.operations.front()));
      } else {
        HVD_RETURN_IF_ERROR(gather_rows(batch));
      }
      break;
  }
  return Move{collective_, in_, out_, sent_, received_};
}

void BatchOfTensors::add_as_they_are(const QueuedBatch& batch) {
  for (const Operation* operation : batch.operations) {
    add(in_, operation->submission.input, operation->count);
    add(out_, operation->submission.output, operation->count);
    collective_.count += operation->count;
  }
}

// Reducescatter: divides the rows of every tensor as evenly as possible.
Status BatchOfTensors::deal_out_rows(QueuedBatch& batch, Stream stream) {
  HVD_RETURN_IF_ERROR(plan_copies(batch, stream));
  const auto element = static_cast<std::int64_t>(size_of(dtype_));
  for (int seat = 0; seat < group_.size(); ++seat) {
    std::int64_t of_seat = 0;
    auto copy = copies_.begin();
    for (const Operation* operation : batch.operations) {
      std::int64_t rows = operation->signature.shape[0];
      if (rows == 0) continue;
      std::int64_t per_row = operation->count / rows;
      auto share = transport::share_of(rows, Seat{seat}, group_.size());
      std::int64_t count = share.count() * per_row;
      const auto* input = static_cast<const std::byte*>(operation->submission.input);
      const bool is_copied = seat == 0 && copy != copies_.end() && copy->from == input;
      add(in_, is_copied ? (copy++)->to : input + share.begin * per_row * element, count);
      if (Seat{seat} == group_.me) add(out_, operation->submission.output, count);
      of_seat += count;
    }
    sent_.push_back(of_seat);
    collective_.count += of_seat;
  }
  return {};
}

// The result of a rank replaces the first rows of its tensor if it works in place. These are seat 0's, so other seats
// give seat 0 a copy: the result may be there before an algorithm has read them, since shares of a tensor may be at
// other places in the shares of the batch.
Status BatchOfTensors::plan_copies(QueuedBatch& batch, Stream stream) {
  if (group_.me == Seat{0}) return {};
  std::size_t bytes = 0;
  for (const Operation* operation : batch.operations) {
    const std::int64_t rows = operation->signature.shape[0];
    const void* input = operation->submission.input;
    if (rows == 0 || input == nullptr || input != operation->submission.output) continue;
    const std::int64_t count = transport::share_of(rows, Seat{0}, group_.size()).count() * (operation->count / rows);
    copies_.push_back({input, nullptr, count});
    bytes += static_cast<std::size_t>(count) * size_of(dtype_);
  }
  if (copies_.empty()) return {};
  auto memory = device_.allocate(bytes, devices::Where::on_device, stream);
  if (!memory) return Error(ErrorCode::out_of_memory, memory.error().message);
  batch.copies = std::move(*memory);
  std::byte* next = batch.copies.data();
  for (devices::Move& copy : copies_) {
    copy.to = next;
    next += static_cast<std::size_t>(copy.count) * size_of(dtype_);
  }
  return {};
}

Status BatchOfTensors::copy_rows(Stream stream) {
  return copies_.empty() ? Status() : device_.move(stream, copies_, {dtype_, dtype_, 1.0, nullptr});
}

Status BatchOfTensors::check_size(const Operation& operation, std::int64_t rows) const {
  if (rows >= 0 && operation.signature.bytes(rows)) return {};
  return Error(ErrorCode::invalid_argument, "the result of " + std::string(name_of(operation.signature.verb)) + " '" +
                                                operation.entry->name + "' has more bytes than 64 bits can count");
}

Status BatchOfTensors::gather_rows(const QueuedBatch& batch) {
  const std::size_t tensors = batch.operations.size();
  const auto seats = static_cast<std::size_t>(group_.size());
  next_.resize(tensors);
  // Sizes are checked before memory is allocated. All members have the same numbers, so all find the same error.
  for (std::size_t t = 0; t < tensors; ++t) {
    std::int64_t all = 0;
    for (std::size_t seat = 0; seat < seats; ++seat)
      if (__builtin_add_overflow(all, theirs_[seat * tensors + t], &all)) all = -1;
    HVD_RETURN_IF_ERROR(check_size(*batch.operations[t], all));
  }
  for (std::size_t t = 0; t < tensors; ++t) {
    std::int64_t all = 0;
    for (std::size_t seat = 0; seat < seats; ++seat) all += theirs_[seat * tensors + t];
    auto kept = keep_result(*batch.operations[t], all);
    if (!kept) return kept.error();
    next_[t] = *kept;
    auto& splits = batch.operations[t]->submission.handle->results[batch.operations[t]->submission.index].splits;
    for (std::size_t seat = 0; seat < seats; ++seat) splits.push_back(theirs_[seat * tensors + t]);
  }
  for (std::size_t seat = 0; seat < seats; ++seat) {
    std::int64_t of_seat = 0;
    for (std::size_t t = 0; t < tensors; ++t) {
      std::int64_t count = theirs_[seat * tensors + t] * batch.operations[t]->count;
      add(out_, next_[t], count);
      next_[t] += static_cast<std::size_t>(count) * size_of(dtype_);
      of_seat += count;
    }
    received_.push_back(of_seat);
    collective_.count += of_seat;
  }
  for (const Operation* operation : batch.operations)
    add(in_, operation->submission.input, operation->submission.first_dimension * operation->count);
  return {};
}

Status BatchOfTensors::exchange_rows(Operation& operation) {
  std::int64_t all = 0;
  for (std::int64_t rows : theirs_)
    if (__builtin_add_overflow(all, rows, &all)) all = -1;
  // Only this rank knows the size of its result. The other ranks may find no error and go on; they then fail because
  // this rank fails.
  if (auto fits = check_size(operation, all); !fits) return Error(ErrorCode::out_of_memory, fits.error().message);
  auto kept = keep_result(operation, all);
  if (!kept) return kept.error();
  operation.submission.handle->results[operation.submission.index].splits = theirs_;
  std::int64_t sent = 0;
  for (std::int64_t rows : mine_) {
    sent_.push_back(rows * operation.count);
    sent += sent_.back();
  }
  for (std::int64_t rows : theirs_) {
    received_.push_back(rows * operation.count);
    collective_.count += received_.back();
  }
  add(in_, operation.submission.input, sent);
  add(out_, *kept, collective_.count);
  // A hint of the usual size. The hint must be equal on all members, and of all numbers about the sizes only this one
  // is.
  collective_.count = std::max<std::int64_t>(operation.count, 1) * group_.size();
  return {};
}

// Returns memory for the result, which the handle owns unless the program gave it.
Result<std::byte*> BatchOfTensors::memory_for(const Operation& operation, KeptResult& result) {
  const Allocate& allocate = operation.extras.allocate;
  std::string why = "allocate() of the start has given none";
  if (allocate.function != nullptr) {
    void* memory = ask(allocate, result);
    result.is_of_program = true;
    if (memory != nullptr || result.bytes == 0) return static_cast<std::byte*>(memory);
  } else {
    auto memory = device_.allocate(result.bytes, devices::Where::on_device, operation.extras.stream);
    if (memory) {
      result.data = std::move(*memory);
      return result.data.data();
    }
    why = memory.error().message;
  }
  return Error(ErrorCode::out_of_memory, "no memory for the " + std::to_string(result.bytes) +
                                             " bytes of the result of " + name_of(operation.signature.verb) + " '" +
                                             operation.entry->name + "': " + why);
}

// Keeps memory for a result of this many rows.
Result<std::byte*> BatchOfTensors::keep_result(Operation& operation, std::int64_t rows) {
  KeptResult result;
  result.shape = operation.signature.shape;
  result.shape[0] = rows;
  auto elements = operation.signature.row().agreed == VerbRow::Agreed::shape && operation.signature.shape[0] > 0
                      ? operation.count / operation.signature.shape[0] * rows
                      : operation.count * rows;
  result.bytes = static_cast<std::size_t>(elements) * size_of(operation.signature.dtype);
  const Submission& submission = operation.submission;
  auto memory = memory_for(operation, result);
  if (!memory) return memory.error();
  result.device = device_.kind();
  auto& results = submission.handle->results;
  if (results.size() <= submission.index) results.resize(submission.index + 1);
  results[submission.index] = std::move(result);
  return *memory;
}

}  // namespace hvd::runtime
