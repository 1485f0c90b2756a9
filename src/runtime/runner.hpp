#pragma once
// The lanes of a rank: one for each process set that it is a member of and each kind of memory that was used in it.
// Batches of one lane run in order, different lanes run at the same time.
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/lane.hpp"

namespace hvd::runtime {

class Runner {
 public:
  struct Parts {
    const TeamMaker* teams = nullptr;
    const World* world = nullptr;
    Counters* counters = nullptr;
    const std::vector<Observer*>* observers = nullptr;
    LogExchange::Send send;
    Finished finished;
  };
  explicit Runner(Parts parts) : parts_(std::move(parts)) {}

  void add(const ProcessSet& set);
  // Batches that are queued are still carried out.
  void remove(ProcessSetId set);
  // This rank is a member of the set.
  bool has(ProcessSetId set) const { return sets_.contains(set); }
  // Opens a batch at the end of the lane's queue; the caller fills in its operations. Of a set that the rank is in.
  std::vector<Operation*>& queue(ProcessSetId set, DeviceKind kind, Sequence sequence);
  // A word that the members of a set need to make their links.
  void published(const PublishedRecord& record);
  Lane& world() { return *lanes_.begin()->second; }

  // That wait or run; what has been issued makes nobody wait.
  int batches_in_flight(ProcessSetId set) const;
  bool is_idle() const;
  // True if a batch began or ended. After a failure of links the error is in failure().
  bool step();
  const Error* failure() const;
  // Gives up everything, plans included. The links have been aborted.
  void abandon();
  // The rank that the operation's running batch waits for; -1 if that is not known.
  Rank waiting_for(const Operation& operation) const;

  void arm() noexcept;
  bool needs_polling() noexcept;
  bool progresses_only_when_polled() noexcept;
  void abort(const Error& reason) noexcept;

 private:
  using Key = std::pair<ProcessSetId, DeviceKind>;
  Lane& lane_of(const ProcessSet& set, DeviceKind kind);

  Parts parts_;
  std::map<ProcessSetId, ProcessSet> sets_;
  std::map<Key, std::unique_ptr<Lane>> lanes_;
  bool has_closed_ = false;  // some lane is removed when its batches are over
};

}  // namespace hvd::runtime
