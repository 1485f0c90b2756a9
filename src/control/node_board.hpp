#pragma once
// The shared memory in which the ranks of a node agree: the arrivals at slots, the requests to the leader, and the log
// of what is to be done. It connects the ranks inside a node as the control links connect nodes. It carries no tensors.
//
//  1. A rank marks its arrival at a slot by turning over its own bit of that slot. One store can mark arrivals at up to
//     64 slots. If the bits of a slot are equal on all members, the slot is at rest. When all members have turned their
//     bits over, the bits are equal again. The rank that sees this (the last one, or several that arrive together)
//     notes the group of 64 slots for the leader (seat 0) and wakes it. No other rank is woken. The members of a slot
//     are the seats of its process set; every seat knows them from the log. A slot begins and ends with all bits zero.
//  2. A rank sends a request for an operation without a slot: bytes in the rank's own ring, which the leader reads.
//  3. The leader appends records to the log. Every seat reads all records in order and publishes its position. The
//     slowest reader determines how much room the log has.
// Every seat's engine sleeps on its own wait word. Only offsets are stored, never pointers, because each process maps
// the memory at another address.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "control/byte_ring.hpp"
#include "native/posix/memory/wait_word.hpp"

namespace hvd::control {

// Only the engine of the seat calls the methods. The wait words are different: any thread may post them.
class NodeBoard {
 public:
  struct Shape {
    int seats = 1;
    int slots = 0;
  };
  static std::size_t bytes_needed(Shape shape);

  // All bytes of `memory` must be zero when the first seat opens it. All seats share it, and the board keeps it alive.
  NodeBoard(std::shared_ptr<void> memory, Shape shape, Seat me);

  Seat me() const { return me_; }
  int slots() const { return shape_.slots; }
  static constexpr Seat leader{0};
  posix::WaitWord& wake_word(Seat seat) { return seats_[seat.value].wake; }

  // This rank has done its part of an end by agreement. From now on the end of its process is no loss.
  void leave() { seats_[me_.value].has_left.store(1, std::memory_order_release); }
  bool has_left(Seat seat) const { return seats_[seat.value].has_left.load(std::memory_order_acquire) != 0; }

  // Counts the seats whose programs wait for an operation in device memory that is in no batch yet. A seat calls
  // set_waiting() when that changes for it.
  void set_waiting(bool waits);
  bool somebody_waits() const { return common_->waiting.load(std::memory_order_acquire) != 0; }

  // Announces to all seats that a rank is lost, with the text of the seat that noticed it. Only the first report
  // counts. A rank that ends because of the loss calls this before it ends, so that its own end is not taken for the
  // cause.
  void announce_lost(Rank rank, std::string_view why);
  bool has_lost() const { return common_->lost.load(std::memory_order_relaxed) != 0; }
  struct Loss {
    Rank rank;
    std::string why;
  };
  std::optional<Loss> loss() const;

  // This seat has read in the log that the slot is given to these members, by seat. An empty list means all seats that
  // have not joined.
  void open(SlotId slot, const std::vector<bool>& members);
  // This seat has read in the log that the slot has ended. Its arrivals there are taken back.
  void close(SlotId slot);
  // This seat has read in the log that ranks have joined, or that all joins are over. `joined` tells which seats need
  // not arrive at slots that are given to all.
  void set_joined(const std::vector<bool>& joined);
  // Marks this seat's arrival at the slot. The others see it after announce_arrivals().
  void arrive(SlotId slot);
  void announce_arrivals();
  // For the leader: gives the next slot at which all members have arrived. Each completed slot is given once.
  bool take_completed(SlotId& slot);
  // For the leader: the completed slot was scheduled, so ranks may arrive at it again.
  void scheduled(SlotId slot);
  // For the leader. Call evicted() before the slot's end is in the log, and given() before the slot is given again.
  // Between the two calls the slot cannot be completed, because each seat closes it only when it reads its end.
  void evicted(SlotId slot);
  void given(SlotId slot);
  // For the leader: looks at all slots itself. The last rank to arrive may have been stopped before it could note the
  // slot.
  void look_at_all_slots();
  // For the leader: returns the members that have not arrived at the slot since it was last scheduled.
  std::vector<Seat> missing_at(SlotId slot) const;
  // For the leader: true if some members have arrived at the slot and others have not.
  bool is_partial(SlotId slot) const;

  // Returns false while this seat's ring is full. A request must not be larger than largest_request().
  bool send_request(ConstBytes request);
  std::size_t largest_request() const { return static_cast<std::size_t>(requests_[0].largest_record()); }
  // For the leader: gives the next request of any seat. It is valid until the next call.
  bool take_request(Seat& from, ConstBytes& request);

  // For the leader: appends to the log. Returns false while the log is full.
  bool append(ConstBytes record);
  std::size_t largest_record() const { return static_cast<std::size_t>(log_.largest_record()); }
  // Gives the next record of the log. It is valid until the next call of read() or publish_position().
  bool read(ConstBytes& record);
  void publish_position();
  // For the leader: returns the number of records that every seat has read, as far as it is published.
  std::uint64_t records_read_by_all() const;

 private:
  static constexpr std::size_t most_bytes_of_why = 2048;
  struct alignas(64) SeatState {
    posix::WaitWord wake;
    alignas(64) std::atomic<std::uint64_t> log_bytes_read;
    std::atomic<std::uint64_t> log_records_read;
    std::atomic<std::uint64_t> request_bytes_taken;  // the leader writes this
    std::atomic<std::uint32_t> has_left;
    std::uint32_t why_bytes;  // length of this seat's text about a loss; written before the loss is announced
    // The text about a loss. Each seat has its own, so that a rank that is killed while it writes does not block the
    // others.
    char why[most_bytes_of_why];
  };
  struct alignas(64) Common {
    std::atomic<std::uint32_t> waiting;  // the number of seats whose programs wait
    std::atomic<std::uint64_t> lost;     // rank + 1 of the lost rank; the upper half is the seat that gives the reason
  };
  struct Layout;

  // The bits of 64 slots.
  using Word = std::atomic<std::uint64_t>;
  Word& arrivals_of(int seat, std::size_t group) const {
    return arrivals_[static_cast<std::size_t>(seat) * arrivals_stride_ + group];
  }
  // Returns the slots of the group at which the seat need not arrive.
  std::uint64_t absent(int seat, std::size_t group) const {
    std::uint64_t absent = strangers_[static_cast<std::size_t>(seat) * groups_ + group];
    return has_joined_[static_cast<std::size_t>(seat)] ? absent | of_all_[group] : absent;
  }
  // Returns the slots of the group at which the seat has arrived since they were last completed.
  std::uint64_t turned(int seat, std::size_t group) const {
    return arrivals_of(seat, group).load() ^ at_rest_[static_cast<std::size_t>(seat) * groups_ + group];
  }
  void set_bit(std::vector<std::uint64_t>& words, SlotId slot, bool value);

  std::shared_ptr<void> memory_;
  Shape shape_;
  Seat me_;
  Common* common_ = nullptr;
  SeatState* seats_ = nullptr;
  std::size_t groups_;  // number of groups of 64 slots
  std::size_t arrivals_stride_;
  Word* arrivals_ = nullptr;   // the bits of each seat, by group of slots
  Word* completed_ = nullptr;  // a bit per group in which a rank saw a completed slot
  // this seat's own bits by group, and those that it has not announced yet
  std::vector<std::uint64_t> my_arrivals_, unannounced_;
  std::vector<std::uint64_t> strangers_;  // by seat and group: the slots of which the seat is not a member
  std::vector<std::uint64_t> of_all_;     // for each group: the slots that are given to all seats
  std::vector<bool> has_joined_;          // for each seat: true if its rank has joined
  std::vector<std::size_t> unannounced_groups_;
  // Used only by the leader. By seat and group: the bits at the time when the slot was last completed. The bits of a
  // rank that has joined do not follow.
  std::vector<std::uint64_t> at_rest_;
  std::vector<std::uint64_t> taken_;  // completed slots that are not scheduled yet
  std::vector<std::uint64_t> void_;   // slots that have ended and are not given again
  std::vector<std::uint64_t> to_look_at_;
  std::size_t group_ = 0;
  std::uint64_t found_ = 0;  // completed slots of the group that take_completed() has not given yet
  std::vector<ByteRing> requests_;
  std::vector<std::uint64_t> request_cursors_;
  int next_requester_ = 0;
  ByteRing log_;
  std::uint64_t log_cursor_ = 0;
  std::uint64_t records_read_ = 0;
};

}  // namespace hvd::control
