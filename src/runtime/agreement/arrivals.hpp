#pragma once
// Which parts of a subtree of nodes (subtrees.hpp) have arrived at each slot.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.hpp"
#include "runtime/agreement/electorates.hpp"
#include "runtime/agreement/subtrees.hpp"

namespace hvd::runtime {

class Arrivals {
 public:
  Arrivals(int slots, int children);
  std::size_t size() const { return slots_.size(); }
  bool has(SlotId slot) const { return slot.value >= 0 && static_cast<std::size_t>(slot.value) < slots_.size(); }

  // Called when the slot is given to an operation of this set, whose first batch follows. `electorate` must outlive the
  // use of the slot. The slot of a transient operation is evicted with its batch.
  void give(SlotId slot, ProcessSetId set, const Electorate& electorate, bool is_transient);
  void evict(SlotId slot) { at(slot).is_given = false; }
  ProcessSetId set_of(SlotId slot) const { return at(slot).set; }
  bool is_transient(SlotId slot) const { return at(slot).is_transient; }

  void add(SlotId slot, int part) { at(slot).arrived.add(part); }
  // Returns true if all parts that have a say have arrived, and no earlier call since the last batch returned true.
  bool become_complete(SlotId slot);
  // Forgets the arrivals at the slot. Arrivals that were sent before the log had this number of records are void.
  void forget(SlotId slot, std::uint64_t records);
  // True if an arrival counts whose sender had seen this number of records.
  bool counts(SlotId slot, std::uint64_t seen) const { return at(slot).void_before <= seen; }
  // True if some part has arrived and others have not.
  bool is_partial(SlotId slot) const { return !at(slot).arrived.is_empty() && !at(slot).is_complete; }

 private:
  struct Slot {
    std::uint64_t void_before = 0;  // number of records up to the last eviction or batch; older arrivals are void
    ProcessSetId set;
    const Electorate* electorate = nullptr;  // the voters of the slot's process set
    bool is_transient = false;
    bool is_given = false;
    Subtrees arrived;
    bool is_complete = false;  // true from the last arrival until the batch is decided
  };
  Slot& at(SlotId slot) { return slots_[static_cast<std::size_t>(slot.value)]; }
  const Slot& at(SlotId slot) const { return slots_[static_cast<std::size_t>(slot.value)]; }

  std::vector<Slot> slots_;
};

}  // namespace hvd::runtime
