#include "runtime/operations/handle.hpp"

#include <sched.h>

#include <algorithm>
#include <span>

namespace hvd::runtime {

Handles::Handles(void (*discard)(void* context, Operation* operation), void* context, std::uint32_t limit)
    : limit_(std::min(limit, most)),
      runtime_([] {
        static std::atomic<std::uint32_t> runtimes{0};
        return runtimes.fetch_add(1, std::memory_order_relaxed) << index_bits;
      }()),
      discard_(discard),
      discard_context_(context) {}

HandleCell* Handles::open(std::uint32_t operations) {
  HandleCell* cell = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (free_.empty()) {
      auto block = static_cast<std::uint32_t>(owned_.size());
      if (block * cells_per_block >= limit_) return nullptr;
      owned_.push_back(std::make_unique<HandleCell[]>(cells_per_block));
      free_.reserve(owned_.size() * cells_per_block);
      for (std::uint32_t i = cells_per_block; i-- > 0;) {
        owned_.back()[i].place = runtime_ | (block * cells_per_block + i + 1);
        free_.push_back(&owned_.back()[i]);
      }
      blocks_[block].store(owned_.back().get(), std::memory_order_release);
    }
    cell = free_.back();
    free_.pop_back();
  }
  cell->remaining.store(operations, std::memory_order_relaxed);
  cell->is_counted_by_two = false;
  cell->record = 0;
  cell->state.store(HandleCell::running, std::memory_order_release);
  return cell;
}

HandleCell* Handles::find(Number number) {
  // If the handle belongs to another runtime, the index is far too large.
  const std::uint32_t index = (static_cast<std::uint32_t>(number) ^ runtime_) - 1;
  if (index / cells_per_block >= most_blocks) return nullptr;
  HandleCell* block = blocks_[index / cells_per_block].load(std::memory_order_acquire);
  if (block == nullptr) return nullptr;
  HandleCell& cell = block[index % cells_per_block];
  if (cell.generation.load(std::memory_order_relaxed) != static_cast<std::uint32_t>(number >> 32)) return nullptr;
  std::uint32_t state = cell.state.load(std::memory_order_acquire);
  return state == HandleCell::running || state == HandleCell::done ? &cell : nullptr;
}

bool Handles::wait(HandleCell& cell, Deadline deadline, bool spin) {
  // Batches of small tensors take microseconds, so the caller looks repeatedly for a while before it sleeps. If the
  // engine and the caller share a core, sched_yield() lets the engine run.
  constexpr auto patience = std::chrono::microseconds(50);
  auto began = Clock::now();
  for (int looks = 0; !is_done(cell); ++looks) {
    if (!spin) ::sched_yield();
    if ((looks & 15) == 15 && Clock::now() - began > patience) break;
  }
  while (!is_done(cell)) {
    std::uint32_t announced = completed_.announce();
    if (is_done(cell)) {
      completed_.retract();
      break;
    }
    auto left = deadline.left();
    if (left.count() <= 0) {
      completed_.retract();
      return is_done(cell);
    }
    completed_.sleep(announced,
                     left > std::chrono::hours(24) ? posix::WaitWord::forever : std::chrono::nanoseconds(left));
  }
  return true;
}

bool Handles::release(HandleCell& cell) {
  std::uint32_t expected = HandleCell::running;
  // The operations still run. The engine recycles the handle when they are done.
  if (cell.state.compare_exchange_strong(expected, HandleCell::abandoned, std::memory_order_acq_rel)) return false;
  if (expected != HandleCell::done) return false;
  if (is_in_use(cell)) {
    keep_until_ended(cell);
    return true;
  }
  recycle(cell);
  return false;
}

void Handles::note(HandleCell& cell, const Outcome& outcome) {
  if (outcome.set == cell.set && outcome.record > cell.record) cell.record = outcome.record;
  if (outcome.error != nullptr && cell.error == nullptr) cell.error = std::make_unique<Error>(*outcome.error);
  // The operations of a batch have one end, and batches settle one after the other: a look at the last one is enough.
  if (outcome.end.event.token != 0 && (cell.ends.empty() || cell.ends.back() != outcome.end))
    cell.ends.push_back(outcome.end);
}

bool Handles::count_down(HandleCell& cell) {
  if (cell.is_counted_by_two) {
    if (cell.remaining.fetch_sub(1, std::memory_order_acq_rel) > 1) return false;
  } else {  // the engine alone: no other processor has to see each step
    const std::uint32_t left = cell.remaining.load(std::memory_order_relaxed) - 1;
    cell.remaining.store(left, std::memory_order_relaxed);
    if (left > 0) return false;
  }
  if (cell.state.exchange(HandleCell::done, std::memory_order_acq_rel) != HandleCell::abandoned) return false;
  if (is_in_use(cell)) {
    keep_until_ended(cell);
    return true;
  }
  recycle(cell);
  return false;
}

void Handles::keep_until_ended(HandleCell& cell) {
  cell.state.store(HandleCell::abandoned, std::memory_order_release);
  std::lock_guard lock(mutex_);
  unended_.push_back(&cell);
  has_unended_.store(true, std::memory_order_release);
}

void Handles::recycle_ended(const HasCome& has_come) {
  std::vector<HandleCell*> ended;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(unended_, [&](HandleCell* cell) {
      if (!std::ranges::all_of(cell->ends, has_come)) return false;
      ended.push_back(cell);
      return true;
    });
    has_unended_.store(!unended_.empty(), std::memory_order_release);
  }
  for (HandleCell* cell : ended) recycle(*cell);
}

void Handles::leave_used_results(const HasCome& has_come) {
  for (const auto& block : owned_)
    for (HandleCell& cell : std::span(block.get(), cells_per_block))
      if (is_in_use(cell) && !std::ranges::all_of(cell.ends, has_come))
        for (KeptResult& result : cell.results) (void)result.data.release();
}

void Handles::recycle(HandleCell& cell) {
  for (Operation* operation : cell.transients) discard_(discard_context_, operation);
  cell.transients.clear();
  cell.results.clear();
  cell.ends.clear();
  cell.is_ordered = false;
  cell.is_waited_for.store(false, std::memory_order_relaxed);
  cell.error.reset();
  cell.generation.fetch_add(1, std::memory_order_relaxed);
  cell.state.store(HandleCell::free, std::memory_order_release);
  std::lock_guard lock(mutex_);
  free_.push_back(&cell);
}

}  // namespace hvd::runtime
