// How the operations of a rank are prepared, started and waited for.
#include "runtime/runtime.hpp"

#include <algorithm>
#include <utility>

#include "base/error_ids.hpp"
#include "runtime/operations/signature_check.hpp"
#include "runtime/static_sets.hpp"

namespace hvd::runtime {

Result<Operation*> Runtime::prepare(std::string_view name, Signature signature, int number) {
  // The name is part of a request, and a request must fit into a ring. Half of the ring is for the name, the other half
  // for the rest of the request.
  std::size_t longest = board_->largest_request() / 2;
  if (name.empty() || name.size() > longest)
    return Error(ErrorCode::invalid_argument, "an operation's name must have 1 to " + std::to_string(longest) +
                                                  " bytes; this one has " + std::to_string(name.size()));
  auto sets = engine_->sets();
  const ProcessSet* set = sets->numbered(number);
  if (set == nullptr) return process_set(number).error();
  HVD_RETURN_IF_ERROR(check(signature, *set, world_.rank, *devices_));
  return operations_.prepare({set->id, name}, std::move(signature));
}

namespace {

Error set_removed(const Operation& operation) {
  return {ErrorCode::invalid_argument, "the process set of '" + operation.entry->name + "' has been removed"};
}

Error memories_differ(const Operation& first, const Operation& operation) {
  return {ErrorCode::unsupported, "'" + first.entry->name + "' is in " + name_of(first.signature.device) +
                                      " memory, '" + operation.entry->name + "' in " +
                                      name_of(operation.signature.device) +
                                      " memory; start operations of different kinds of memory one by one"};
}

// The engine wrote these cache lines last. If all of them are fetched at the same time, the caller waits for one
// transfer instead of for all.
void fetch_ahead(const Operation& operation) {
  __builtin_prefetch(&operation.entry->in_flight, 1);
  __builtin_prefetch(&operation.references, 1);
}

}  // namespace

// Records the present position of the stream. Later is too late: the program may queue more work on the stream as soon
// as this call returns.
Status Runtime::note_extras(const Start& start, Together& together) {
  Operation& operation = *start.operation;
  operation.has_extras = start.has_extras();
  operation.extras.splits.assign(start.splits.begin(), start.splits.end());
  operation.extras.on_done = start.on_done;
  operation.extras.allocate = start.allocate;
  operation.extras.stream = start.stream;
  operation.extras.ready = {};
  operation.extras.rest = {};
  if (start.on_done.on_its_own_thread) {
    together.has_callbacks_on_thread = true;
    HVD_RETURN_IF_ERROR(callbacks_->start());
  }
  if (!start.stream) return {};
  if (together.stream != start.stream) {
    auto ready = device(operation.signature.device)->record(start.stream);
    if (!ready)
      return Error(ready.error().code,
                   "'" + operation.entry->name + "' cannot start on the given stream: " + ready.error().message);
    together.stream = start.stream;
    together.ready = *ready;
  }
  operation.extras.ready = together.ready;
  return {};
}

// Takes the operation's name for one use, and one of the starts of a transient operation. All checks of an operation
// are made here together: many operations do not fit into the first-level cache, so a second look at each of them would
// cost time.
Status Runtime::take(const Start& start, Together& together) {
  Operation& operation = *start.operation;
  const ProcessSetId set = operation.entry->set;  // the set may have been removed since prepare()
  if (set != global_process_set) {
    const CurrentSets sets = engine_->sets();
    if (sets->find(set) == nullptr) return set_removed(operation);
  }
  if (operation.signature.row().has_tensor()) {
    if (together.first == nullptr) together.first = &operation;
    if (operation.signature.device != together.first->signature.device)
      return memories_differ(*together.first, operation);
  }
  if (operation.entry->in_flight.exchange(true, std::memory_order_acq_rel))
    return identified(Error(ErrorCode::invalid_argument, "'" + operation.entry->name + "' is in flight already on " +
                                                             describe(world_, world_.rank) +
                                                             "; wait for it or give this one another name"),
                      "HVD2105");
  Status taken;
  // A transient operation is released with the handle of its use, so it can have only one use.
  if (operation.signature.transient && operation.starts.fetch_sub(1) <= 0) {
    taken =
        Error(ErrorCode::invalid_argument, "'" + operation.entry->name +
                                               "' was prepared as transient and has been started before; prepare it "
                                               "for each use");
  } else if (start.has_extras() || operation.has_extras) {
    taken = note_extras(start, together);
  }
  OperationTable::hold(operation);
  if (!taken) give_back(operation);
  together.has_transients |= operation.signature.transient;
  return taken;
}

void Runtime::give_back(Operation& operation) {
  if (operation.signature.transient) ++operation.starts;
  operation.entry->in_flight.store(false);
  operations_.release(operation);
}

Result<Handles::Number> Runtime::submit(std::span<const Start> starts, Handles::Number* early) {
  if (auto reason = engine_->inbox().is_closed() ? ended() : nullptr) return *reason;
  constexpr std::size_t ahead = 8;
  Together together;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    if (i + ahead < starts.size()) fetch_ahead(*starts[i + ahead].operation);
    if (Status taken = take(starts[i], together); !taken) {
      for (const Start& before : starts.first(i)) give_back(*before.operation);
      return taken.error();
    }
  }
  HandleCell* cell = handles_.open(static_cast<std::uint32_t>(starts.size()));
  if (cell == nullptr) {
    for (const Start& start : starts) give_back(*start.operation);
    return Error(ErrorCode::out_of_memory,
                 "'" + starts.front().operation->entry->name +
                     "' cannot be started: " + std::to_string(handles_.limit()) +
                     " handles are held, which is the limit; release handles whose operations are done (hvd_release)");
  }
  Handles::Number number = Handles::number_of(*cell);
  if (early != nullptr) *early = number;
  cell->set = starts.front().operation->entry->set;
  cell->is_on_device = together.first != nullptr && together.first->signature.device != DeviceKind::host;
  if (together.has_callbacks_on_thread) {
    cell->is_counted_by_two = true;
    cell->results.resize(starts.size());  // a callback may read one while the engine adds the next
  }
  for (const Start& start : starts)
    if (together.has_transients && start.operation->signature.transient) cell->transients.push_back(start.operation);
  Inbox::Pushed pushed = engine_->inbox().push(starts, *cell);
  if (pushed == Inbox::Pushed::first) engine_->wake();
  if (pushed != Inbox::Pushed::closed) return number;
  cell->transients.clear();  // these operations were not started and still belong to the program
  for (const Start& start : starts) {
    give_back(*start.operation);
    handles_.count_down(*cell);
  }
  handles_.release(*cell);
  return *ended();
}

Result<HandleCell*> Runtime::run(const Start& start) {
  auto number = submit({&start, 1});
  if (!number) {
    operations_.release(*start.operation);  // it belongs to its handle only once it is started
    return number.error();
  }
  HandleCell* cell = handles_.find(*number);
  wait(*cell, Deadline::never());
  return cell;
}

// True if the device does nothing more for the operation. Otherwise `wake` is posted when that is so.
bool Runtime::has_come(const EndOnDevice& end, posix::WaitWord& wake) const {
  auto there = device(end.device)->query(end.event, &wake);
  return !there || *there;
}

// The streams wait also for results that are not complete, so that nothing writes later to memory that the program
// gives back on them.
Status Runtime::order(HandleCell& cell, const std::optional<Stream>& stream) {
  if (cell.ends.empty()) return {};
  const Engine::Completeness complete = engine_->completeness_of(cell);
  if (!complete.may_order) return complete.status;
  Status waits;
  for (const EndOnDevice& end : cell.ends)
    if (waits) waits = device(end.device)->wait(stream.value_or(end.stream), end.event);
  if (!stream && waits) cell.is_ordered = true;
  return complete.status ? waits : complete.status;
}

// Runs an operation that moves no data, and waits for it.
Status Runtime::carry_out(OpNameView name, Signature signature) {
  signature.transient = true;
  auto operation = prepare(name.name, std::move(signature));
  if (!operation) return operation.error();
  auto cell = run({.operation = *operation});
  if (!cell) return cell.error();
  note_synchronised(**cell);
  Status status = (*cell)->error ? Status(*(*cell)->error) : Status();
  handles_.release(**cell);
  return status;
}

Result<int> Runtime::add_process_set(std::vector<Rank> ranks) {
  std::sort(ranks.begin(), ranks.end());
  HVD_RETURN_IF_ERROR(check_ranks_of_set(ranks, world_.size()));
  Signature signature;
  signature.verb = Verb::add_set;
  signature.dtype = DataType::i32;
  signature.shape = bits_of(ranks);
  // The request has the bits, the record of the log the list.
  if (signature.shape.size() * sizeof(std::int64_t) > board_->largest_request() / 2 ||
      ranks.size() * sizeof(Rank) > board_->largest_record() / 2)
    return Error(ErrorCode::unsupported, "a process set of " + std::to_string(ranks.size()) + " ranks up to rank " +
                                             std::to_string(ranks.back().value) +
                                             " is too large to be added now; list it when the job starts "
                                             "(hvd.init(process_sets=[...]), hvd_init_options.set_ranks)");
  std::lock_guard lock(sets_mutex_);
  HVD_RETURN_IF_ERROR(carry_out(add_set_name, std::move(signature)));
  auto sets = engine_->sets();
  if (const ProcessSet* added = sets->of(ranks)) return added->number;
  return Error(ErrorCode::shut_down, "the process set was removed as soon as it was added");
}

Status Runtime::remove_process_set(int number) {
  Signature signature;
  signature.verb = Verb::remove_set;
  signature.dtype = DataType::i32;
  signature.shape = {number};
  std::lock_guard lock(sets_mutex_);
  return carry_out(remove_set_name, std::move(signature));
}

Status Runtime::at_one_point(const std::string& name, const Status& mine, std::function<void()> action) {
  Signature vote;
  vote.verb = Verb::allreduce;
  vote.dtype = DataType::i32;
  vote.op = ReduceOp::min;
  vote.shape = {1};
  vote.transient = true;
  auto operation = prepare(name, std::move(vote));
  if (!operation) return operation.error();
  std::int32_t all = mine ? 1 : 0;
  (*operation)->when_done = [&all, &action] {
    if (all == 1) action();
  };
  Start start;
  start.operation = *operation;
  start.input = start.output = &all;
  auto cell = run(start);
  if (!cell) return cell.error();
  Status status = (*cell)->error ? Status(*(*cell)->error) : mine;
  handles_.release(**cell);
  if (status && all == 0)
    return Error(ErrorCode::out_of_memory, "another rank could not do its part of '" + name + "'; its error says why");
  return status;
}

}  // namespace hvd::runtime
