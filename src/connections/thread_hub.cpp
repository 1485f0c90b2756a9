#include "connections/thread_hub.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/panic.hpp"

namespace hvd::connections {

namespace {

constexpr std::size_t page_bytes = 4096;

// The generator splitmix64.
std::uint64_t next_random(std::uint64_t& state) {
  state += 0x9E3779B97F4A7C15ull;
  std::uint64_t mixed = state;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ull;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBull;
  return mixed ^ (mixed >> 31);
}

}  // namespace

ThreadHub::ThreadHub(int ranks) {
  if (ranks < 1) panic("a ThreadHub needs at least one rank");
  for (int rank = 0; rank < ranks; ++rank) desks_.push_back(std::make_unique<Desk>());
}

ThreadHub::~ThreadHub() = default;

Result<std::shared_ptr<void>> ThreadHub::share_memory(std::string_view name, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  Shared& shared = memories_[std::string(name)];
  if (auto memory = shared.memory.lock()) {
    if (shared.bytes != bytes)
      return Error(ErrorCode::mismatch, "shared memory '" + std::string(name) + "' of " + std::to_string(shared.bytes) +
                                            " bytes was asked for with " + std::to_string(bytes));
    return memory;
  }
  std::size_t rounded = std::max(bytes + page_bytes - 1, page_bytes) / page_bytes * page_bytes;
  void* data = std::aligned_alloc(page_bytes, rounded);
  if (data == nullptr)
    return Error(ErrorCode::out_of_memory,
                 "no memory for " + std::to_string(rounded) + " bytes of '" + std::string(name) + "'");
  std::memset(data, 0, rounded);
  std::shared_ptr<void> memory(data, [](void* pointer) { std::free(pointer); });
  shared = {memory, bytes};
  return memory;
}

void ThreadHub::set_wake(Rank rank, posix::WaitWord* wake) {
  std::lock_guard lock(desk(rank).mutex);
  desk(rank).wake = wake;
}

void ThreadHub::wake(Rank rank) {
  std::lock_guard lock(desk(rank).mutex);
  if (desk(rank).wake != nullptr) desk(rank).wake->post();
}

void ThreadHub::delay(Rank from, Rank to, int polls) {
  std::lock_guard lock(mutex_);
  faults_.delays[{from, to}] = polls;
  has_faults_ = true;
}

void ThreadHub::delay_randomly(std::uint64_t seed, int longest_polls) {
  std::lock_guard lock(mutex_);
  faults_.random_state = seed;
  faults_.longest_polls = longest_polls;
  has_faults_ = true;
}

void ThreadHub::drop_next(Rank from, Rank to, int messages) {
  std::lock_guard lock(mutex_);
  faults_.drops[{from, to}] += messages;
  has_faults_ = true;
}

void ThreadHub::kill(Rank rank) {
  if (!desk(rank).is_dead.exchange(true)) deaths_.fetch_add(1, std::memory_order_acq_rel);
  for (int other = 0; other < ranks(); ++other) wake(Rank{other});
}

bool ThreadHub::is_dead(Rank rank) const noexcept {
  return desks_[static_cast<std::size_t>(rank.value)]->is_dead.load(std::memory_order_acquire);
}

std::optional<int> ThreadHub::fate_of_message(Rank from, Rank to) {
  if (!has_faults_.load(std::memory_order_acquire)) return 0;
  std::lock_guard lock(mutex_);
  if (auto drop = faults_.drops.find({from, to}); drop != faults_.drops.end() && drop->second > 0) {
    --drop->second;
    return std::nullopt;
  }
  int polls = 0;
  if (auto delay = faults_.delays.find({from, to}); delay != faults_.delays.end()) polls = delay->second;
  if (faults_.longest_polls > 0)
    polls += static_cast<int>(next_random(faults_.random_state) % (static_cast<unsigned>(faults_.longest_polls) + 1u));
  return polls;
}

std::shared_ptr<ThreadHub::Line> ThreadHub::open_line(std::string_view name, const Group& group) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Line>& line = lines_[std::string(name)];
  if (!line) line = std::make_shared<Line>(group);
  if (line->ranks != group.ranks) panic("the link '" + std::string(name) + "' was opened with two different groups");
  return line;
}

void ThreadHub::post(Line& line, Seat to, Letter& letter) {
  auto seat = static_cast<std::size_t>(to.value);
  Rank receiver = line.ranks[seat];
  std::optional<int> polls = fate_of_message(line.ranks[static_cast<std::size_t>(letter.from.value)], receiver);
  if (!polls) {
    letter.stage.store(2, std::memory_order_release);
    return;
  }
  letter.polls_left = *polls;
  letter.stage.store(0, std::memory_order_relaxed);
  {
    Line::Mailbox& mailbox = line.mailboxes[seat];
    std::lock_guard lock(mailbox.mutex);
    mailbox.letters.push_back(&letter);
  }
  wake(receiver);
}

ThreadHub::Taken ThreadHub::take(Line& line, Seat me, Seat from, Channel channel, Bytes into,
                                 std::size_t& actual_bytes) {
  auto seat = static_cast<std::size_t>(me.value);
  Line::Mailbox& mailbox = line.mailboxes[seat];
  std::unique_lock lock(mailbox.mutex);
  auto found = std::find_if(mailbox.letters.begin(), mailbox.letters.end(),
                            [&](const Letter* letter) { return letter->from == from && letter->channel == channel; });
  if (found == mailbox.letters.end()) return Taken::not_here;
  Letter* letter = *found;
  if (letter->polls_left > 0) {
    --letter->polls_left;
    lock.unlock();
    wake(line.ranks[seat]);  // the receiver must poll again, and may be about to sleep
    return Taken::not_here;
  }
  mailbox.letters.erase(found);
  actual_bytes = letter->bytes.size();
  bool fits = actual_bytes == into.size();
  if (fits && actual_bytes != 0) {
    // While `stage` is 1, the sender leaves its bytes unchanged. The mutex is free during the copy, so that other
    // messages of this mailbox need not wait.
    letter->stage.store(1, std::memory_order_relaxed);
    lock.unlock();
    std::memcpy(into.data(), letter->bytes.data(), actual_bytes);
    lock.lock();
  }
  letter->stage.store(2, std::memory_order_release);  // from now on the letter belongs to the sender again
  mailbox.copied.notify_all();
  lock.unlock();
  wake(line.ranks[static_cast<std::size_t>(from.value)]);
  return fits ? Taken::delivered : Taken::wrong_size;
}

void ThreadHub::withdraw(Line& line, Seat to, Letter& letter) {
  Line::Mailbox& mailbox = line.mailboxes[static_cast<std::size_t>(to.value)];
  std::unique_lock lock(mailbox.mutex);
  std::erase(mailbox.letters, &letter);
  mailbox.copied.wait(lock, [&] { return letter.stage.load(std::memory_order_relaxed) != 1; });
}

void ThreadHub::close(Line& line, Seat me, std::string why) {
  Line::Mailbox& mailbox = line.mailboxes[static_cast<std::size_t>(me.value)];
  mailbox.why_closed = std::move(why);
  mailbox.is_closed.store(true, std::memory_order_release);
  for (Rank rank : line.ranks) wake(rank);
}

}  // namespace hvd::connections
