#pragma once
// The coordinator: what the ranks agree on in, schedule out. A pure function object of the one rank that writes the
// log; it knows no links, no threads and no time, so every rule of the agreement is a table test.
//
//  1. A rank that submits an op without a slot sends a ballot: name and signature. When all members of its process set
//     have (ballots.hpp counts them), the name is given a slot and the op is ready, or it fails on all members because
//     they disagree.
//  2. A rank that submits an op with a slot marks its arrival there; we hear of it once, when all members have arrived.
//  3. A ballot for a name whose slot is live means that somebody changed the op: the slot is evicted, everybody who has
//     arrived at it sends a ballot instead, and rule 1 decides.
//  4. Ready ops of a set become batches: neighbours of like kind up to the fusion threshold, in the order in which they
//     became ready. While batches of the set are in flight, small ones wait for company.
//  5. An evicted or transient slot may be given again once every rank has read the record that ended it.
//  6. A rank that has joined counts as having submitted everything in the world; what zeros cannot take part in fails.
//     Once all have joined and have nothing under way, all slots of the world end, so that nobody's arrivals are in
//     doubt. Then the joins are over.
//  7. Process sets are added and removed as ops of the world are agreed on. The slots of a removed set end with it.
//  8. The first wish of any rank that all leave their loops is written down where it comes; the place is what counts.
//  9. Any rank's wish to shut down ends the log for all.
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "runtime/process_sets.hpp"
#include "runtime/schedule.hpp"
#include "runtime/signature.hpp"

namespace hvd::runtime {

// How many batches of a process set are under way.
using BatchesInFlight = std::function<int(ProcessSetId)>;

class Coordinator {
 public:
  struct Settings {
    int slots = 0;  // how many there are on the board
    std::int64_t cache_capacity = 1024;
    std::int64_t fusion_threshold_bytes = 128ll << 20;
    bool groups_do_not_mix = false;  // ops that were submitted as a group share batches with no others
  };
  // The records are handed to `emit` in the order of the log; their views are valid only during the call. A slot's
  // arrivals must be cleared when it is given. The code that takes the records keeps `sets` up to date.
  using Emit = std::function<void(const Record&)>;

  Coordinator(Settings settings, const ProcessSets& sets, Emit emit);

  void contest(OpNameView name);  // somebody has sent a ballot for it
  void agreed(OpNameView name, const Signature& signature);
  void disagreed(OpNameView name, std::string_view message);
  // Every member has arrived at the slot. A late word about an evicted slot is ignored.
  void all_arrived(SlotId slot);
  // `is_idle`: nothing that the rank submitted before is under way. Called again when that has become true.
  void join(Rank rank, bool is_idle);
  // Ends the joins if all have joined and are idle; after what that completes was said.
  void end_joins();
  void shut_down(Rank by, std::string_view reason);
  void set_stop_point(Rank by, StopCause cause, std::string_view reason);
  // A value for the members of a set, while links are made.
  void publish(Rank by, ProcessSetId set, std::string_view key, ConstBytes value);
  // Makes batches of ready ops, as many as the batches in flight make sensible.
  void schedule(const BatchesInFlight& batches_in_flight);
  void schedule(int batches_in_flight);  // as many in every set
  // Every rank has read so many records.
  void read_by_all(std::uint64_t records);

  // Ops that all members have agreed on wait for a slot, until all ranks have read more records.
  bool has_starved() const { return !starved_.empty(); }

  // The names of the slots that are cached, for reports: visits (slot, name).
  void visit_slots(const std::function<void(SlotId, const OpName&)>& visit) const;

 private:
  enum class SlotState : std::uint8_t { free, live, ready, ended };
  struct Slot {
    SlotState state = SlotState::free;
    OpName name;
    Signature signature;
    std::int64_t bytes = 0;
    std::list<SlotId>::iterator recent;  // place in recently_used_, while cached
  };
  struct Ended {
    SlotId slot;
    std::uint64_t records;  // reusable once all ranks have read so many records
  };
  struct Ready {  // of one set, in the order in which they became ready
    std::vector<SlotId> slots;
    std::int64_t bytes = 0;
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
  bool over_capacity() const { return static_cast<std::int64_t>(recently_used_.size()) > settings_.cache_capacity; }
  bool may_share(const Signature& first, const Signature& other) const;
  void take_batch(ProcessSetId set, Ready& ready);

  Settings settings_;
  const ProcessSets& sets_;
  Emit emit_;
  std::vector<Slot> slots_;
  std::vector<SlotId> free_;
  std::deque<Ended> ended_;
  std::map<OpName, SlotId, OrderOfNames> slot_of_;    // live names
  std::list<SlotId> recently_used_;                   // cached slots, oldest first
  std::deque<std::pair<OpName, Signature>> starved_;  // agreed, but no slot is free yet
  std::map<ProcessSetId, Ready> ready_;
  std::vector<SlotId> batch_;
  std::vector<Rank> joined_;  // in order
  std::vector<Rank> idle_;    // of those
  std::uint64_t emitted_ = 0;
  std::uint64_t sequence_ = 0;
  bool has_stop_point_ = false;
  bool shut_down_ = false;
};

}  // namespace hvd::runtime
