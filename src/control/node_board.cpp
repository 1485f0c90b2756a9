#include "control/node_board.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace hvd::control {

namespace {

constexpr std::uint64_t request_ring_bytes = 64 << 10;
constexpr std::uint64_t log_ring_bytes = 1 << 20;

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + 63) & ~std::size_t{63};
}

constexpr std::size_t groups_of(int slots) {
  return (static_cast<std::size_t>(slots) + 63) / 64;
}
// Returns the number of words to reserve for one writer. They fill whole cache lines, so that no other writer shares a
// line.
constexpr std::size_t whole_lines(std::size_t words) {
  return (words + 7) / 8 * 8;
}

}  // namespace

// The offsets of the parts, in bytes from the start.
struct NodeBoard::Layout {
  std::size_t common, seats, arrivals, completed, requests, log, end;

  explicit Layout(Shape shape) {
    std::size_t seat_count = static_cast<std::size_t>(shape.seats);
    std::size_t groups = groups_of(shape.slots);
    common = 0;
    seats = aligned(sizeof(Common));
    arrivals = aligned(seats + seat_count * sizeof(SeatState));
    completed = aligned(arrivals + seat_count * whole_lines(groups) * sizeof(Word));
    requests = aligned(completed + whole_lines(groups_of(static_cast<int>(groups))) * sizeof(Word));
    log = aligned(requests + seat_count * (sizeof(RingHead) + request_ring_bytes));
    end = aligned(log + sizeof(RingHead) + log_ring_bytes);
  }
};

std::size_t NodeBoard::bytes_needed(Shape shape) {
  return Layout(shape).end;
}

NodeBoard::NodeBoard(std::shared_ptr<void> memory, Shape shape, Seat me)
    : memory_(std::move(memory)),
      shape_(shape),
      me_(me),
      groups_(groups_of(shape.slots)),
      arrivals_stride_(whole_lines(groups_)),
      my_arrivals_(groups_),
      unannounced_(groups_),
      strangers_(groups_ * static_cast<std::size_t>(shape.seats)),
      of_all_(groups_, ~std::uint64_t{0}),
      has_joined_(static_cast<std::size_t>(shape.seats)),
      at_rest_(groups_ * static_cast<std::size_t>(shape.seats)),
      taken_(groups_),
      void_(groups_),
      to_look_at_(groups_of(static_cast<int>(groups_))) {
  unannounced_groups_.reserve(groups_);
  // Every part begins in the state that zeroed memory means. No constructor runs there.
  Layout layout(shape);
  auto* base = static_cast<std::byte*>(memory_.get());
  common_ = reinterpret_cast<Common*>(base + layout.common);
  seats_ = reinterpret_cast<SeatState*>(base + layout.seats);
  arrivals_ = reinterpret_cast<Word*>(base + layout.arrivals);
  completed_ = reinterpret_cast<Word*>(base + layout.completed);
  for (int seat = 0; seat < shape.seats; ++seat) {
    std::byte* ring = base + layout.requests + static_cast<std::size_t>(seat) * (sizeof(RingHead) + request_ring_bytes);
    requests_.emplace_back(reinterpret_cast<RingHead*>(ring), ring + sizeof(RingHead), request_ring_bytes);
  }
  request_cursors_.resize(requests_.size());
  std::byte* log = base + layout.log;
  log_ = ByteRing(reinterpret_cast<RingHead*>(log), log + sizeof(RingHead), log_ring_bytes);
}

void NodeBoard::set_waiting(bool waits) {
  common_->waiting.fetch_add(waits ? 1u : ~0u, std::memory_order_acq_rel);
  if (me_ != leader) wake_word(leader).post();
}

void NodeBoard::announce_lost(Rank rank, std::string_view why) {
  if (has_lost()) return;
  SeatState& mine = seats_[me_.value];
  mine.why_bytes = static_cast<std::uint32_t>(std::min(why.size(), most_bytes_of_why));
  std::memcpy(mine.why, why.data(), mine.why_bytes);
  std::uint64_t nobody = 0;
  std::uint64_t said = static_cast<std::uint64_t>(me_.value) << 32 | static_cast<std::uint32_t>(rank.value + 1);
  common_->lost.compare_exchange_strong(nobody, said, std::memory_order_acq_rel);
  for (int seat = 0; seat < shape_.seats; ++seat) seats_[seat].wake.post();
}

std::optional<NodeBoard::Loss> NodeBoard::loss() const {
  std::uint64_t said = common_->lost.load(std::memory_order_acquire);
  if (said == 0) return std::nullopt;
  const SeatState& from = seats_[said >> 32];
  return Loss{Rank{static_cast<std::int32_t>(said & 0xffffffff) - 1},
              std::string(from.why, std::min<std::size_t>(from.why_bytes, most_bytes_of_why))};
}

void NodeBoard::set_bit(std::vector<std::uint64_t>& words, SlotId slot, bool value) {
  std::uint64_t bit = std::uint64_t{1} << (slot.value % 64);
  std::uint64_t& word = words[static_cast<std::size_t>(slot.value) / 64];
  word = value ? word | bit : word & ~bit;
}

void NodeBoard::open(SlotId slot, const std::vector<bool>& members) {
  set_bit(of_all_, slot, members.empty());
  std::uint64_t bit = std::uint64_t{1} << (slot.value % 64);
  for (std::size_t seat = 0; seat < has_joined_.size(); ++seat) {
    std::uint64_t& word = strangers_[seat * groups_ + static_cast<std::size_t>(slot.value) / 64];
    word = members.empty() || members[seat] ? word & ~bit : word | bit;
  }
}

void NodeBoard::close(SlotId slot) {
  auto group = static_cast<std::size_t>(slot.value) / 64;
  set_bit(my_arrivals_, slot, false);
  if (unannounced_[group] == 0) unannounced_groups_.push_back(group);
  set_bit(unannounced_, slot, false);
  announce_arrivals();
}

void NodeBoard::set_joined(const std::vector<bool>& joined) {
  has_joined_ = joined;
  // Slots that waited only for these ranks are complete now. Their arrivals were announced before, when they were not
  // complete, so they are announced again.
  for (std::size_t group = 0; group < groups_; ++group) {
    if (unannounced_[group] == 0) unannounced_groups_.push_back(group);
    unannounced_[group] = ~std::uint64_t{0};
  }
  announce_arrivals();
}

void NodeBoard::arrive(SlotId slot) {
  auto group = static_cast<std::size_t>(slot.value) / 64;
  std::uint64_t bit = std::uint64_t{1} << (slot.value % 64);
  if (unannounced_[group] == 0) unannounced_groups_.push_back(group);
  my_arrivals_[group] ^= bit;
  unannounced_[group] |= bit;
}

// If ranks arrive at the same time, at least one of them must see all arrivals. Therefore every store and load is
// sequentially consistent.
void NodeBoard::announce_arrivals() {
  if (unannounced_groups_.empty()) return;
  bool was_last = false;
  for (std::size_t group : unannounced_groups_) {
    std::uint64_t mine = my_arrivals_[group], turned = std::exchange(unannounced_[group], 0);
    arrivals_of(me_.value, group).store(mine);
    for (int seat = 0; seat < shape_.seats && turned != 0; ++seat)
      if (seat != me_.value) turned &= ~(arrivals_of(seat, group).load() ^ mine) | absent(seat, group);
    if (turned == 0) continue;
    completed_[group / 64].fetch_or(std::uint64_t{1} << (group % 64));
    was_last = true;
  }
  unannounced_groups_.clear();
  if (was_last && me_ != leader) wake_word(leader).post();
}

bool NodeBoard::take_completed(SlotId& slot) {
  while (found_ == 0) {
    std::size_t word = 0;
    for (; word < to_look_at_.size() && to_look_at_[word] == 0; ++word)
      if (completed_[word].load(std::memory_order_relaxed) != 0) {
        to_look_at_[word] = completed_[word].exchange(0);
        break;
      }
    if (word == to_look_at_.size()) return false;
    group_ = word * 64 + static_cast<std::size_t>(std::countr_zero(to_look_at_[word]));
    to_look_at_[word] &= to_look_at_[word] - 1;
    // A rank that has joined need not arrive, but it may have arrived before it joined.
    found_ = ~void_[group_];
    std::uint64_t has_any = 0;
    for (int seat = 0; seat < shape_.seats; ++seat) {
      std::uint64_t arrived = turned(seat, group_);
      found_ &= arrived | absent(seat, group_);
      has_any |= arrived;
    }
    found_ &= has_any;
    for (int seat = 0; seat < shape_.seats && found_ != 0; ++seat)
      at_rest_[static_cast<std::size_t>(seat) * groups_ + group_] ^= found_ & turned(seat, group_);
    taken_[group_] |= found_;
  }
  slot = SlotId{static_cast<std::int32_t>(group_) * 64 + std::countr_zero(found_)};
  found_ &= found_ - 1;
  return true;
}

void NodeBoard::scheduled(SlotId slot) {
  taken_[static_cast<std::size_t>(slot.value) / 64] &= ~(std::uint64_t{1} << (slot.value % 64));
}

void NodeBoard::evicted(SlotId slot) {
  auto group = static_cast<std::size_t>(slot.value) / 64;
  std::uint64_t bit = std::uint64_t{1} << (slot.value % 64);
  taken_[group] &= ~bit;
  void_[group] |= bit;
  if (group == group_) found_ &= ~bit;
}

void NodeBoard::given(SlotId slot) {
  set_bit(void_, slot, false);
  std::uint64_t bit = std::uint64_t{1} << (slot.value % 64);
  for (int seat = 0; seat < shape_.seats; ++seat)
    at_rest_[static_cast<std::size_t>(seat) * groups_ + static_cast<std::size_t>(slot.value) / 64] &= ~bit;
}

void NodeBoard::look_at_all_slots() {
  for (std::size_t group = 0; group < groups_; ++group) to_look_at_[group / 64] |= std::uint64_t{1} << (group % 64);
}

std::vector<Seat> NodeBoard::missing_at(SlotId slot) const {
  std::vector<Seat> missing;
  auto group = static_cast<std::size_t>(slot.value) / 64;
  if ((taken_[group] >> (slot.value % 64) & 1) != 0) return missing;  // the slot waits for other nodes
  for (int seat = 0; seat < shape_.seats; ++seat) {
    std::uint64_t arrived = turned(seat, group) | absent(seat, group);
    if ((arrived >> (slot.value % 64) & 1) == 0) missing.push_back(Seat{seat});
  }
  return missing;
}

bool NodeBoard::is_partial(SlotId slot) const {
  auto group = static_cast<std::size_t>(slot.value) / 64;
  int members = 0;
  for (int seat = 0; seat < shape_.seats; ++seat)
    members += (absent(seat, group) >> (slot.value % 64) & 1) == 0 ? 1 : 0;
  auto missing = static_cast<int>(missing_at(slot).size());
  return missing > 0 && missing < members;
}

bool NodeBoard::send_request(ConstBytes request) {
  std::uint64_t taken = seats_[me_.value].request_bytes_taken.load(std::memory_order_acquire);
  if (!requests_[static_cast<std::size_t>(me_.value)].write(request, taken)) return false;
  wake_word(leader).post();  // the leader itself, too: it may send between its last look at requests and its sleep
  return true;
}

bool NodeBoard::take_request(Seat& from, ConstBytes& request) {
  for (int tried = 0; tried < shape_.seats; ++tried) {
    int seat = next_requester_;
    auto index = static_cast<std::size_t>(seat);
    // The caller has used the request that the last call returned, so its room may be overwritten.
    seats_[seat].request_bytes_taken.store(request_cursors_[index], std::memory_order_release);
    if (requests_[index].read(request_cursors_[index], request)) {
      from = Seat{seat};
      return true;
    }
    next_requester_ = (seat + 1) % shape_.seats;
  }
  return false;
}

bool NodeBoard::append(ConstBytes record) {
  std::uint64_t slowest = ~std::uint64_t{0};
  for (int seat = 0; seat < shape_.seats; ++seat)
    slowest = std::min(slowest, seats_[seat].log_bytes_read.load(std::memory_order_acquire));
  if (!log_.write(record, slowest)) return false;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int seat = 0; seat < shape_.seats; ++seat)
    if (seat != me_.value) seats_[seat].wake.post_relaxed();
  return true;
}

bool NodeBoard::read(ConstBytes& record) {
  if (!log_.read(log_cursor_, record)) return false;
  ++records_read_;
  return true;
}

void NodeBoard::publish_position() {
  seats_[me_.value].log_bytes_read.store(log_cursor_, std::memory_order_release);
  seats_[me_.value].log_records_read.store(records_read_, std::memory_order_release);
}

std::uint64_t NodeBoard::records_read_by_all() const {
  std::uint64_t slowest = ~std::uint64_t{0};
  for (int seat = 0; seat < shape_.seats; ++seat)
    slowest = std::min(slowest, seats_[seat].log_records_read.load(std::memory_order_acquire));
  return slowest;
}

}  // namespace hvd::control
