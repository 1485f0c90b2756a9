#include "transport/node_board.hpp"

#include <algorithm>
#include <bit>

namespace hvd::transport {

namespace {

constexpr std::uint64_t request_ring_bytes = 64 << 10;
constexpr std::uint64_t log_ring_bytes = 1 << 20;

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + 63) & ~std::size_t{63};
}

}  // namespace

// Where the parts lie, in bytes from the start.
struct NodeBoard::Layout {
  std::size_t seats, arrivals, ticket, completed, requests, log, end;
  std::uint64_t completed_capacity;

  explicit Layout(Shape shape) {
    std::size_t seat_count = static_cast<std::size_t>(shape.seats);
    std::size_t slot_count = static_cast<std::size_t>(shape.slots);
    std::size_t words = (seat_count + 63) / 64 + 1;
    // A slot is on the ring at most once, so it can never overflow.
    completed_capacity = std::bit_ceil(static_cast<std::uint64_t>(slot_count) + 1);
    seats = 0;
    arrivals = aligned(seats + seat_count * sizeof(SeatState));
    ticket = aligned(arrivals + slot_count * words * sizeof(std::uint64_t));
    completed = aligned(ticket + sizeof(Ticket));
    requests = aligned(completed + completed_capacity * sizeof(std::uint32_t));
    log = aligned(requests + seat_count * (sizeof(RingHead) + request_ring_bytes));
    end = aligned(log + sizeof(RingHead) + log_ring_bytes);
  }
};

std::size_t NodeBoard::bytes_needed(Shape shape) {
  return Layout(shape).end;
}

NodeBoard::NodeBoard(std::shared_ptr<void> memory, Shape shape, Seat me)
    : memory_(std::move(memory)), shape_(shape), me_(me), words_((shape.seats + 63) / 64) {
  // Zeroed memory is the initial state of every part; no constructor runs in it.
  Layout layout(shape);
  auto* base = static_cast<std::byte*>(memory_.get());
  seats_ = reinterpret_cast<SeatState*>(base + layout.seats);
  arrivals_ = reinterpret_cast<std::atomic<std::uint64_t>*>(base + layout.arrivals);
  completed_ticket_ = reinterpret_cast<Ticket*>(base + layout.ticket);
  completed_ = reinterpret_cast<std::atomic<std::uint32_t>*>(base + layout.completed);
  completed_capacity_ = layout.completed_capacity;
  for (int seat = 0; seat < shape.seats; ++seat) {
    std::byte* ring = base + layout.requests + static_cast<std::size_t>(seat) * (sizeof(RingHead) + request_ring_bytes);
    requests_.emplace_back(reinterpret_cast<RingHead*>(ring), ring + sizeof(RingHead), request_ring_bytes);
  }
  request_cursors_.resize(requests_.size());
  std::byte* log = base + layout.log;
  log_ = ByteRing(reinterpret_cast<RingHead*>(log), log + sizeof(RingHead), log_ring_bytes);
}

std::uint64_t NodeBoard::full_word(int word) const {
  int bits = std::min(64, shape_.seats - 64 * word);
  return bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
}

bool NodeBoard::arrive(SlotId slot) {
  std::atomic<std::uint64_t>* words = arrival_words(slot);
  int word = me_.value / 64;
  std::uint64_t mine = std::uint64_t{1} << (me_.value % 64);
  if ((words[word].fetch_or(mine, std::memory_order_acq_rel) | mine) != full_word(word)) return false;
  if (words_ > 1 && words[words_].fetch_add(1, std::memory_order_acq_rel) + 1 != static_cast<std::uint64_t>(words_))
    return false;
  std::uint64_t at = completed_ticket_->next.fetch_add(1, std::memory_order_acq_rel);
  completed_[at & (completed_capacity_ - 1)].store(static_cast<std::uint32_t>(slot.value) + 1,
                                                   std::memory_order_release);
  if (me_ != leader) wake_word(leader).post();
  return true;
}

std::vector<Seat> NodeBoard::missing_at(SlotId slot) const {
  std::vector<Seat> missing;
  for (int seat = 0; seat < shape_.seats; ++seat) {
    std::uint64_t word = arrival_words(slot)[seat / 64].load(std::memory_order_acquire);
    if ((word >> (seat % 64) & 1) == 0) missing.push_back(Seat{seat});
  }
  return missing;
}

bool NodeBoard::take_completed(SlotId& slot) {
  std::atomic<std::uint32_t>& entry = completed_[completed_taken_ & (completed_capacity_ - 1)];
  std::uint32_t found = entry.load(std::memory_order_acquire);
  if (found == 0) return false;
  entry.store(0, std::memory_order_relaxed);
  ++completed_taken_;
  slot = SlotId{static_cast<std::int32_t>(found - 1)};
  // Nobody arrives again before the slot has been scheduled, which the leader does after this.
  clear_arrivals(slot);
  return true;
}

void NodeBoard::clear_arrivals(SlotId slot) {
  for (int i = 0; i <= words_; ++i) arrival_words(slot)[i].store(0, std::memory_order_relaxed);
}

bool NodeBoard::send_request(ConstBytes request) {
  std::uint64_t taken = seats_[me_.value].request_bytes_taken.load(std::memory_order_acquire);
  if (!requests_[static_cast<std::size_t>(me_.value)].write(request, taken)) return false;
  if (me_ != leader) wake_word(leader).post();
  return true;
}

bool NodeBoard::take_request(Seat& from, ConstBytes& request) {
  for (int tried = 0; tried < shape_.seats; ++tried) {
    int seat = next_requester_;
    auto index = static_cast<std::size_t>(seat);
    // What was handed out at the last call has been used: its room may be written again.
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
  ++records_appended_;
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

}  // namespace hvd::transport
