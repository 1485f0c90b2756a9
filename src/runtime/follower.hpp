#pragma once
// A rank's part in the agreement: what it sends to the leader, and what it then reads from the log. The rank of the
// leader has one too. Only the engine's thread uses it, except for sets().
//
// 1. An op that was submitted and has a slot marks its arrival there; for any other op a ballot is sent.
// 2. Records give slots to ops and take them away. A batch is a list of slots: this rank queues its operations at
//    these slots. A rank that has joined takes part with stand-ins.
// 3. When a batch has ended, or an op has failed, its operations are settled.
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "runtime/agreement/outbox.hpp"
#include "runtime/agreement/schedule.hpp"
#include "runtime/lanes/runner.hpp"
#include "runtime/observers/observer.hpp"
#include "runtime/operations/callbacks.hpp"
#include "runtime/operations/handle.hpp"
#include "runtime/operations/op_name.hpp"
#include "runtime/operations/operation.hpp"
#include "runtime/operations/process_sets.hpp"
#include "runtime/operations/rank_context.hpp"

namespace hvd::runtime {

class Follower {
 public:
  // The parts of the rank to which a follower speaks. They outlive it.
  struct Parts {
    OperationTable& operations;
    Handles& handles;
    Outbox& outbox;
    Runner& runner;
    CallbackThread& callbacks;
  };
  // `sets` are the process sets that exist from the start.
  Follower(const RankContext& rank, const Parts& parts, const std::vector<std::vector<Rank>>& sets);

  // Takes what the program has submitted. Does not announce the arrivals yet.
  void take(std::span<const Submission> submissions, Clock::time_point now);

  // Some handle is now waited for (HandleCell::is_waited_for).
  void note_waits();

  // ---- the log; advance() comes first for each record
  void advance() { ++records_read_; }
  std::uint64_t records_read() const { return records_read_; }
  void learn_slot(const GiveRecord& record);
  void forget_slot(SlotId slot);
  void queue_batch(const BatchRecord& record);
  void fail(const FailRecord& record);
  void take_note_of_join(const JoinRecord& record);
  void end_joins(const AllJoinedRecord& record);
  void add_set(const AddSetRecord& record);
  void remove_set(ProcessSetId id);

  // All operations that are submitted and not settled.
  const std::vector<Operation*>& in_flight() const { return in_flight_; }
  // Called when the operation has ended for the host; `end` is its end on a device, if that comes later. Does not
  // announce its handle yet.
  void settle(Operation& operation, const Error* error, Event end = {});
  // Settles all that is in flight with the reason, and so these submissions, which came too late.
  void end(std::span<const Submission> late, const Error& reason);
  // May be called on any thread. Returns the process sets as of the records that this rank has read.
  CurrentSets sets() const;

 private:
  // This rank's knowledge of a slot.
  struct SlotUse {
    NameEntry* entry = nullptr;  // null: free, of a set without this rank, or the op was not submitted here
    bool is_transient = false;
    // Set if other ranks have submitted the op, but this rank has joined and has not.
    std::unique_ptr<std::pair<OpName, Signature>> of_others;
  };
  // An operation that replaces one which this rank has not submitted.
  struct StandIn {
    NameEntry entry;
    Operation operation;
    bool is_in_use = false;
  };

  void introduce(Operation& operation);
  int note_what_precedes_a_join();
  void give_back(SlotId slot);
  void end_wait(Operation& operation);
  Operation& part_in(SlotId slot);
  Operation& stand_in(OpNameView name, const Signature& signature);
  void change_sets(const std::function<void(ProcessSets&)>& change);
  std::vector<bool> members_on_my_node(const ProcessSet& set) const;
  void settle_by_name(OpNameView name, const Error* error);

  const World& world_;
  const topology::Layout& layout_;
  control::NodeBoard& board_;
  OperationTable& operations_;
  Handles& handles_;
  const std::vector<Observer*>& observers_;
  Counters& counters_;
  Outbox& outbox_;
  Runner& runner_;
  CallbackThread& callbacks_;

  mutable std::mutex sets_mutex_;
  std::shared_ptr<const ProcessSets> sets_;  // changed by the engine's thread
  std::vector<SlotUse> slots_;               // by slot
  std::vector<Operation*> in_flight_;        // each knows its index
  std::list<StandIn> stand_ins_;
  std::vector<bool> joined_;  // by seat of this node; empty while no rank has joined
  bool has_joined_ = false;   // this rank has joined
  int awaited_ = 0;           // number of operations in flight that are awaited (Operation::is_awaited)
  int preceding_join_ = 0;    // number of operations submitted before this rank joined and not settled
  std::uint64_t records_read_ = 0;
};

}  // namespace hvd::runtime
