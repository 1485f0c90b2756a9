#pragma once
// The coordinator: agreements of the ranks go in, the schedule comes out. A pure function object of the one rank that
// writes the log. It has no links, threads or time, so every rule of the agreement can be tested by a table.
//
//  1. A rank that submits an op without a slot sends a ballot: name and signature. When all members of its process set
//     have sent one (ballots.hpp counts them), the name is given a slot and the op is ready. If the members disagree,
//     the op fails on all of them.
//  2. A rank that submits an op with a slot marks its arrival there. The coordinator gets one message about the
//     slot, when all members have arrived.
//  3. A ballot for a name that has a slot means that a rank has changed the op. The slot is evicted, and every rank
//     that has arrived at it sends a ballot instead. Then rule 1 decides.
//  4. Ready ops of a set and kind of memory become batches, in the order in which they became ready: neighbours of the
//     same kind travel together, up to the fusion threshold. While batches of their lane are in flight, small batches
//     wait for more ops: in host memory until the lane is idle; on a device, where the host may be far ahead, for the
//     time of Settings::linger at most, and not beside one batch in flight when a program waits for an operation. On
//     an idle device a few small ops wait for a moment: the next gradients are about to come.
//  5. An evicted or transient slot may be given again when every rank has read the record that ended it.
//  6. A rank that has joined counts as having submitted every op of the world. An op fails if zeros cannot replace the
//     rank's data. When all ranks have joined and have nothing under way, all slots of the world end, so that no
//     arrival can be misunderstood. Then the joins are over.
//  7. Process sets are added and removed when all ranks of the world agree on an op that does so. The slots of a
//     removed set end with the set.
//  8. Any rank may ask that all ranks leave their loops. The first such request becomes a record. The place of this
//     record in the log decides after which step the ranks leave.
//  9. A shutdown that any rank asks for ends the log for all ranks.
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "runtime/agreement/schedule.hpp"
#include "runtime/operations/process_sets.hpp"
#include "runtime/operations/signature.hpp"

namespace hvd::runtime {

// Returns how many batches of a process set and kind of memory are under way here. Empty if this rank is not a member.
using BatchesInFlight = std::function<std::optional<int>(ProcessSetId, DeviceKind)>;

class Coordinator {
 public:
  struct Settings {
    int slots = 0;  // number of slots on the board
    std::int64_t cache_capacity = 1024;
    std::int64_t fusion_threshold_bytes = 128ll << 20;
    std::int64_t device_fusion_threshold_bytes = 32ll << 20;
    std::int64_t enough_for_an_idle_device = 1 << 20;  // bytes that do not wait for others
    Clock::duration linger = std::chrono::milliseconds(1);
    Clock::duration short_linger = std::chrono::milliseconds(1);  // at most, on an idle device or for a waiting program
    std::function<Clock::time_point()> now = &Clock::now;  // asked only while ops in device memory wait for others
    bool groups_do_not_mix = false;  // ops of a submitted group share batches only with each other
  };
  // The records are passed to `emit` in the order of the log. Their views are valid only during the call. When a slot
  // is given, the arrivals at it must be cleared. The code that receives the records must keep `sets` up to date.
  using Emit = std::function<void(const Record&)>;

  Coordinator(Settings settings, const ProcessSets& sets, Emit emit);

  void contest(OpNameView name);  // a rank has sent a ballot for it
  void agreed(OpNameView name, const Signature& signature);
  void disagreed(OpNameView name, std::string_view message);
  // Called when every member has arrived at the slot. Ignored if the slot has been evicted meanwhile.
  void all_arrived(SlotId slot);
  // `is_idle` is true if nothing that the rank submitted earlier is under way. If it is false, join() is called again
  // when it becomes true.
  void join(Rank rank, bool is_idle);
  // Ends the joins if all ranks have joined and are idle. Called after everything that the joins complete was reported.
  void end_joins();
  // `id` is that of the reason, if it has one (base/error_ids.hpp).
  void shut_down(Rank by, std::string_view reason, std::string_view id = {});
  void set_stop_point(Rank by, StopCause cause, std::string_view reason);
  // Passes on a value to the members of a set. They need it to make their links.
  void publish(Rank by, ProcessSetId set, std::string_view key, ConstBytes value);
  // Some rank's program waits (or no longer waits) for an operation in device memory that is in no batch yet.
  void set_program_waits(bool waits) { program_waits_ = waits; }
  // The lowest member of a set without this rank reports the end of a batch in device memory.
  void batch_ended(ProcessSetId set, DeviceKind kind);
  // Makes batches of ready ops. The number of batches in flight decides how many.
  void schedule(const BatchesInFlight& batches_in_flight);
  void schedule(int batches_in_flight);  // decides as if every process set had this number of batches in flight
  void schedule_all();                   // makes batches of all ready ops
  // Called when every rank has read this number of records.
  void read_by_all(std::uint64_t records);

  // Set while ready ops in device memory wait for others: schedule() must be called again then. Until then an end of a
  // batch on this rank's device is news, too.
  std::optional<Clock::time_point> linger_due() const { return linger_due_; }
  // True if ops that all members have agreed on wait for a free slot, until all ranks have read more records.
  bool has_starved() const { return !starved_.empty(); }

  // Calls visit(slot, name) for all cached slots, for reports.
  void visit_slots(const std::function<void(SlotId, const OpName&)>& visit) const;

 private:
  enum class SlotState : std::uint8_t { free, live, ready, ended };
  using LaneKey = std::pair<ProcessSetId, DeviceKind>;
  struct Ready {  // the ready ops of one lane, in the order in which they became ready
    LaneKey lane;
    std::vector<SlotId> slots;
    std::int64_t bytes = 0;
    std::optional<Clock::time_point> since;  // when schedule() first left them waiting
    int elsewhere = 0;  // of a device's lane in a set without the root: the batches whose end the lowest member has
                        // not reported
  };
  struct Slot {
    SlotState state = SlotState::free;
    OpName name;
    Signature signature;
    std::int64_t bytes = 0;
    Ready* ready = nullptr;              // the list of the op's lane
    std::list<SlotId>::iterator recent;  // place of the slot in one of the lists of cached slots, if it is cached
  };
  struct Ended {
    SlotId slot;
    std::uint64_t records;  // may be given again when all ranks have read this many records
  };

  Slot& at(SlotId slot) { return slots_[static_cast<std::size_t>(slot.value)]; }
  void emit(const Record& record);
  void add_set(OpNameView name, const Signature& signature);
  void remove_set(OpNameView name, const Signature& signature);
  bool refuse_for_joined(OpNameView name, const Signature& signature);
  bool give(OpNameView name, const Signature& signature);
  void make_ready(SlotId slot);
  void end(SlotId slot);
  void evict(SlotId slot);
  void evict_all_of(ProcessSetId set);
  void shrink_cache();
  std::int64_t threshold_of(DeviceKind kind) const {
    return kind == DeviceKind::host ? settings_.fusion_threshold_bytes : settings_.device_fusion_threshold_bytes;
  }
  bool over_capacity() const {
    return static_cast<std::int64_t>(recently_used_.size() + scheduled_next_.size()) > settings_.cache_capacity;
  }
  bool may_share(const Signature& first, const Signature& other) const;
  Ready& ready_in(LaneKey lane);
  bool lingers(Ready& ready, const BatchesInFlight& batches_in_flight);
  bool is_in(ProcessSetId set) const;
  void take_all(Ready& ready);
  void take_batch(Ready& ready);

  Settings settings_;
  const ProcessSets& sets_;
  Emit emit_;
  std::vector<Slot> slots_;
  std::vector<SlotId> free_;
  std::deque<Ended> ended_;
  std::map<OpName, SlotId, OrderOfNames> slot_of_;  // names that have a slot
  // The cached slots: those of ops that may be evicted, oldest first, and those of ready ops. They are apart, so that
  // making room never looks at ready ops, of which there may be as many as slots.
  std::list<SlotId> recently_used_, scheduled_next_;
  std::deque<std::pair<OpName, Signature>> starved_;  // agreed ops for which no slot is free yet
  std::map<LaneKey, Ready> ready_;
  std::optional<Clock::time_point> linger_due_;
  bool program_waits_ = false;
  std::vector<SlotId> batch_;
  std::vector<Rank> joined_;  // the ranks that have joined, in the order of their joins
  std::vector<Rank> idle_;    // the joined ranks that are idle
  std::uint64_t emitted_ = 0;
  std::uint64_t sequence_ = 0;
  bool has_stop_point_ = false;
  bool shut_down_ = false;
};

}  // namespace hvd::runtime
