#pragma once
// The coordinator: what the ranks agree on in, schedule out. A pure function object of the one rank that writes the log;
// it knows no links, no threads and no time, so every rule of the agreement is a table test.
//
//  1. A rank that submits an op without a slot sends a ballot: name and signature. When all ranks have (ballots.hpp
//     counts them), the name is given a slot and the op is ready, or it fails on all ranks because they disagree.
//  2. A rank that submits an op with a slot marks its arrival there; we hear of it once, when all have arrived.
//  3. A ballot for a name whose slot is live means that somebody changed the op: the slot is evicted, everybody who has
//     arrived at it sends a ballot instead, and rule 1 decides.
//  4. Ready ops become batches: neighbours of like kind up to the fusion threshold, in the order in which they became
//     ready. While batches are in flight, small ones wait for company.
//  5. An evicted or transient slot may be given again once every rank has read the record that ended it.
//  6. Any rank's wish to shut down ends the log for all.
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "runtime/schedule.hpp"
#include "runtime/signature.hpp"

namespace hvd::runtime {

class Coordinator {
 public:
  struct Settings {
    int slots = 0;  // how many there are on the board
    std::int64_t cache_capacity = 1024;
    std::int64_t fusion_threshold_bytes = 128ll << 20;
  };
  // The records are handed to `emit` in the order of the log; their views are valid during the call only. A slot's
  // arrivals must be cleared when it is given.
  using Emit = std::function<void(const Record&)>;

  Coordinator(Settings settings, Emit emit);

  void contest(std::string_view name);  // somebody has sent a ballot for it
  void agreed(const std::string& name, const Signature& signature);
  void disagreed(std::string_view name, std::string_view message);
  // Every member has arrived at the slot. A late word about an evicted slot is ignored.
  void all_arrived(SlotId slot);
  void shut_down(Rank by, std::string_view reason);
  // A value for everybody, while links are made.
  void publish(Rank by, std::string_view key, ConstBytes value);
  // Turns ready ops into batches, as far as `batches_in_flight` leaves reason to.
  void schedule(int batches_in_flight);
  // Every rank has read so many records.
  void read_by_all(std::uint64_t records);

  // Ops that all ranks agree about wait for a slot, until more records have been read by all.
  bool has_starved() const { return !starved_.empty(); }

  // The names of the slots that are cached, for reports: visits (slot, name).
  void visit_slots(const std::function<void(SlotId, const std::string&)>& visit) const;

 private:
  enum class SlotState : std::uint8_t { free, live, ready, ended };
  struct Slot {
    SlotState state = SlotState::free;
    std::string name;
    Signature signature;
    std::int64_t bytes = 0;
    std::list<SlotId>::iterator recent;  // place in recently_used_, while cached
  };
  struct Ended {
    SlotId slot;
    std::uint64_t records;  // reusable once so many have been read by all
  };

  Slot& at(SlotId slot) { return slots_[static_cast<std::size_t>(slot.value)]; }
  void emit(const Record& record);
  bool give(const std::string& name, const Signature& signature);
  void end(SlotId slot);
  void evict(SlotId slot);
  void shrink_cache();
  bool over_capacity() const { return static_cast<std::int64_t>(recently_used_.size()) > settings_.cache_capacity; }
  void take_batch();

  Settings settings_;
  Emit emit_;
  std::vector<Slot> slots_;
  std::vector<SlotId> free_;
  std::deque<Ended> ended_;
  std::map<std::string, SlotId, std::less<>> slot_of_;     // live names
  std::list<SlotId> recently_used_;                        // cached slots, oldest first
  std::deque<std::pair<std::string, Signature>> starved_;  // agreed, but no slot is free yet
  std::vector<SlotId> ready_;
  std::vector<SlotId> batch_;
  std::int64_t ready_bytes_ = 0;
  std::uint64_t emitted_ = 0;
  std::uint64_t sequence_ = 0;
  bool shut_down_ = false;
};

}  // namespace hvd::runtime
