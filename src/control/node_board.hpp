#pragma once
// The memory in which the ranks of a node agree: who has arrived at which slot, what is asked of the leader, and the
// log of what is to be done. The control link inside a node; no tensor passes through it.
//
//  1. A rank marks its arrival at a slot by turning over its own bit of that slot: any number of slots cost a store
//     per 64 of them. Bits that are equal on all members are at rest; once all have turned theirs over, they are again.
//     The rank that sees that (the last one, or several that come together) notes the 64 slots for the leader (seat 0)
//     and wakes it; no other rank is disturbed. Members of a slot are the seats of its process set; every seat knows
//     them from the log. A slot begins and ends with all bits zero.
//  2. What has no slot yet is a request: bytes on the rank's own ring, read by the leader.
//  3. The leader appends records to the log; every seat reads all of them in order and publishes how far it has got.
//     Room in the log is what the slowest reader leaves.
// Every seat's engine sleeps on its own wait word. Only offsets are stored, never pointers: the mapping differs by
// process.
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
#include "native/posix/wait_word.hpp"

namespace hvd::control {

// All methods belong to the engine of the seat, except the wait words, which anybody may post.
class NodeBoard {
 public:
  struct Shape {
    int seats = 1;
    int slots = 0;
  };
  static std::size_t bytes_needed(Shape shape);

  // `memory` is zeroed when the first seat comes, shared by all seats, and kept alive by the board.
  NodeBoard(std::shared_ptr<void> memory, Shape shape, Seat me);

  Seat me() const { return me_; }
  int slots() const { return shape_.slots; }
  static constexpr Seat leader{0};
  posix::WaitWord& wake_word(Seat seat) { return seats_[seat.value].wake; }

  // I have done my part of an end by agreement: from now on the end of my process is no loss.
  void leave() { seats_[me_.value].has_left.store(1, std::memory_order_release); }
  bool has_left(Seat seat) const { return seats_[seat.value].has_left.load(std::memory_order_acquire) != 0; }

  // A rank is lost. All seats must know, in the words of the seat that noticed; the first report counts. Call it before
  // this rank ends because of it, so that nobody takes this rank's own end for the cause.
  void announce_lost(Rank rank, std::string_view why);
  bool has_lost() const { return common_->lost.load(std::memory_order_relaxed) != 0; }
  struct Loss {
    Rank rank;
    std::string why;
  };
  std::optional<Loss> loss() const;

  // I read in the log that the slot is given to these members, by seat. Empty: to all that have not joined.
  void open(SlotId slot, const std::vector<bool>& members);
  // I read that the slot has ended: my arrivals there are taken back.
  void close(SlotId slot);
  // I read that ranks have joined, or that all joins are over: it says who counts as absent at the slots of all seats.
  void set_joined(const std::vector<bool>& joined);
  // I have arrived at the slot; the others see it with announce_arrivals().
  void arrive(SlotId slot);
  void announce_arrivals();
  // For the leader: the next slot at which all have arrived; each is returned once.
  bool take_completed(SlotId& slot);
  // For the leader: the completed slot was scheduled, so ranks may arrive at it anew.
  void scheduled(SlotId slot);
  // For the leader: call the first before the slot's end is in the log, and the second before the slot is given anew.
  // In between nothing is completed there, since each seat closes the slot when it reads its end.
  void evicted(SlotId slot);
  void given(SlotId slot);
  // For the leader: looks for completed slots itself, since the last rank to arrive may have been stopped before it
  // could say so.
  void look_at_all_slots();
  // For the leader: the members that have not arrived at the slot since it was last scheduled.
  std::vector<Seat> missing_at(SlotId slot) const;
  // For the leader: some members have, and some have not.
  bool is_partial(SlotId slot) const;

  // False while my ring is full. A record must not be larger than largest_request().
  bool send_request(ConstBytes request);
  std::size_t largest_request() const { return static_cast<std::size_t>(requests_[0].largest_record()); }
  // For the leader: the next request of any seat; valid until the next call.
  bool take_request(Seat& from, ConstBytes& request);

  // For the leader: false while the log is full.
  bool append(ConstBytes record);
  std::size_t largest_record() const { return static_cast<std::size_t>(log_.largest_record()); }
  // The next record; valid until the next call of read() or publish_position().
  bool read(ConstBytes& record);
  void publish_position();
  // For the leader: every seat has published that it read at least so many records.
  std::uint64_t records_read_by_all() const;

 private:
  static constexpr std::size_t most_bytes_of_why = 2048;
  struct alignas(64) SeatState {
    posix::WaitWord wake;
    alignas(64) std::atomic<std::uint64_t> log_bytes_read;
    std::atomic<std::uint64_t> log_records_read;
    std::atomic<std::uint64_t> request_bytes_taken;  // written by the leader
    std::atomic<std::uint32_t> has_left;
    std::uint32_t why_bytes;  // of what this seat says about a loss; written before it is announced
    // Each seat has its own, so that a rank that is killed while it writes does not block the others.
    char why[most_bytes_of_why];
  };
  struct alignas(64) Common {
    std::atomic<std::uint64_t> lost;  // rank + 1, and in the upper half the seat that says why
  };
  struct Layout;

  // The bits of 64 slots.
  using Word = std::atomic<std::uint64_t>;
  Word& arrivals_of(int seat, std::size_t group) const {
    return arrivals_[static_cast<std::size_t>(seat) * arrivals_stride_ + group];
  }
  // The slots of the group at which the seat need not arrive.
  std::uint64_t absent(int seat, std::size_t group) const {
    std::uint64_t absent = strangers_[static_cast<std::size_t>(seat) * groups_ + group];
    return has_joined_[static_cast<std::size_t>(seat)] ? absent | of_all_[group] : absent;
  }
  // The slots of the group at which the seat has arrived since they were completed last.
  std::uint64_t turned(int seat, std::size_t group) const {
    return arrivals_of(seat, group).load() ^ at_rest_[static_cast<std::size_t>(seat) * groups_ + group];
  }
  void set_bit(std::vector<std::uint64_t>& words, SlotId slot, bool value);

  std::shared_ptr<void> memory_;
  Shape shape_;
  Seat me_;
  Common* common_ = nullptr;
  SeatState* seats_ = nullptr;
  std::size_t groups_;  // of 64 slots
  std::size_t arrivals_stride_;
  Word* arrivals_ = nullptr;                              // by seat and group
  Word* completed_ = nullptr;                             // a bit per group in which somebody saw a slot completed
  std::vector<std::uint64_t> my_arrivals_, unannounced_;  // by group
  std::vector<std::uint64_t> strangers_;                  // by seat and group: slots of which the seat is no member
  std::vector<std::uint64_t> of_all_;                     // by group: slots that are given to all
  std::vector<bool> has_joined_;                          // by seat
  std::vector<std::size_t> unannounced_groups_;
  // The leader's:
  // By seat and group: where the bits were when the slot was completed last. The bits of who has joined stay behind.
  std::vector<std::uint64_t> at_rest_;
  std::vector<std::uint64_t> taken_;  // completed, not scheduled
  std::vector<std::uint64_t> void_;   // ended, not given
  std::vector<std::uint64_t> to_look_at_;
  std::size_t group_ = 0;
  std::uint64_t found_ = 0;  // completed slots of the group that are not taken yet
  std::vector<ByteRing> requests_;
  std::vector<std::uint64_t> request_cursors_;
  int next_requester_ = 0;
  ByteRing log_;
  std::uint64_t log_cursor_ = 0;
  std::uint64_t records_read_ = 0;
};

}  // namespace hvd::control
