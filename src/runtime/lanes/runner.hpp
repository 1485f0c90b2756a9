#pragma once
// The lanes of a rank: one for each process set of which the rank is a member and each kind of memory that was used in
// it. Batches of one lane run in order; batches of different lanes run at the same time.
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/lanes/lane.hpp"
#include "runtime/operations/rank_context.hpp"

namespace hvd::runtime {

class Runner {
 public:
  Runner(const RankContext& rank, const TeamMaker& teams, LogExchange::Send send, Finished finished)
      : rank_(rank), teams_(teams), send_(std::move(send)), finished_(std::move(finished)) {}

  void add(const ProcessSet& set);
  // Removes a set. Its queued batches are still carried out.
  void remove(ProcessSetId set);
  // True if this rank is a member of the set.
  bool has(ProcessSetId set) const { return sets_.contains(set); }
  // Adds an empty batch at the end of the lane's queue. Returns its list of operations, which the caller fills. This
  // rank must be a member of the set.
  std::vector<Operation*>& queue(ProcessSetId set, DeviceKind kind, Sequence sequence);
  // Takes a word that the members of a set need to make their links.
  void published(const PublishedRecord& record);
  Lane& world() { return *lanes_.begin()->second; }

  // The number of batches that wait or run, also on a device; empty if this rank is not a member.
  std::optional<int> batches_in_flight(ProcessSetId set, DeviceKind kind) const;
  bool is_idle() const;
  // Returns true if a batch began or ended. After a failure of links failure() has the error.
  bool step();
  const Error* failure() const;
  // Returns the batch that has been longest on a device of all that were issued and have not ended.
  struct OldestIssued {
    IssuedBatch batch;
    bool is_held_up_by_program = false;  // Lane::is_held_up_by_program()
  };
  std::optional<OldestIssued> oldest_issued() const;
  // Returns the ends of all issued batches that have not ended.
  std::vector<EndOnDevice> unended() const;
  // Aborts all links, and gives up all batches and plans. What devices have to do with that may take until the
  // deadline. Returns "" if all is done, else what hangs: this object and all that it uses must then never be
  // destroyed.
  std::string end(const Error& reason, Deadline deadline);
  // Returns the rank that the operation's running batch waits for; -1 if it is not known.
  Rank waiting_for(const Operation& operation) const;

  void arm(bool for_all) noexcept;  // as Lane::arm()
  // The earliest Lane::connect_due().
  std::optional<Clock::time_point> connect_due() const;
  bool needs_polling() noexcept;
  bool progresses_only_when_polled() noexcept;

 private:
  using Key = std::pair<ProcessSetId, DeviceKind>;
  Lane& lane_of(const ProcessSet& set, DeviceKind kind);

  const RankContext& rank_;
  const TeamMaker& teams_;
  const LogExchange::Send send_;
  const Finished finished_;
  std::map<ProcessSetId, ProcessSet> sets_;
  std::map<Key, std::unique_ptr<Lane>> lanes_;
  std::map<DeviceKind, Turnstile> turnstiles_;  // of devices
  bool has_closed_ = false;                     // some lane is to be removed when its batches have ended
};

}  // namespace hvd::runtime
