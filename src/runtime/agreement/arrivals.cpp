#include "runtime/agreement/arrivals.hpp"

namespace hvd::runtime {

Arrivals::Arrivals(int slots, int children) : slots_(static_cast<std::size_t>(slots)) {
  for (Slot& slot : slots_) slot.arrived = Subtrees(children);
}

void Arrivals::give(SlotId slot, ProcessSetId set, const Electorate& electorate, bool is_transient) {
  Slot& it = at(slot);
  it.set = set;
  it.electorate = &electorate;
  it.is_transient = is_transient;
  it.is_given = true;
  it.arrived.clear();
  it.is_complete = true;  // for the first batch the ballots of all members take the place of arrivals
}

bool Arrivals::become_complete(SlotId slot) {
  Slot& it = at(slot);
  if (!it.is_given || it.is_complete || it.arrived.is_empty()) return false;
  it.is_complete = it.arrived.has_all_of(it.electorate->subtrees);
  return it.is_complete;
}

void Arrivals::forget(SlotId slot, std::uint64_t records) {
  Slot& it = at(slot);
  it.void_before = records;
  it.arrived.clear();
  it.is_complete = false;
}

}  // namespace hvd::runtime
