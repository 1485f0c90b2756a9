#pragma once
// Runs the batches of one process set in one kind of memory, one after the other in the order of the log. For each
// batch it finds or plans the task, restarts the task with the batch's tensors and steps it. In steady state nothing is
// planned and no memory is allocated.
//
// A task for tensors on a device may be issued: the rest of its batch happens on the device, and the next batch begins.
// If the caller gave a stream, its operation has ended for the host at once. The lane touches no stream of a caller: a
// thread that waits for the handle orders its own behind the end of the batch (Runtime::order). Without a stream the
// operation ends with the batch.
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "base/recently_used.hpp"
#include "runtime/lanes/batch.hpp"
#include "runtime/lanes/teams.hpp"
#include "runtime/lanes/turnstile.hpp"
#include "runtime/observers/observer.hpp"
#include "runtime/operations/rank_context.hpp"

namespace hvd::runtime {

class Lane {
 public:
  // The turnstile is that of all lanes of this device; null for host memory. `report_end` is called at the end of each
  // batch; it is null if nobody wants to know.
  Lane(const RankContext& rank, std::unique_ptr<Teams> teams, Finished finished, Turnstile* turnstile,
       std::function<void()> report_end);

  // Nothing can be carried out. The other ranks learn of it from this rank.
  void fail(const Error& error);
  // Makes the links. Called before the first batch; otherwise the links are made when that batch begins.
  Progress connect();
  Teams& teams() { return *teams_; }

  // Adds an empty batch at the end of the queue. Returns its list of operations, which the caller fills.
  std::vector<Operation*>& queue(Sequence sequence);
  // The number of batches that wait or run, also on the device.
  int batches_in_flight() const { return static_cast<int>(queued_.size() + issued_.size()); }
  bool is_idle() const { return queued_.empty() && issued_.empty(); }
  // Returns true if a batch began or ended. After a failure of the links, failure() has the error and the batch stays
  // in flight. If no member can carry out a batch, it fails on all members alike, and the next batches run.
  bool step();
  const Error* failure() const { return failure_ ? &*failure_ : nullptr; }
  // Set while links are made after the start: step() has to be called then.
  std::optional<Clock::time_point> connect_due() const { return connect_due_; }
  // Called before the engine sleeps. The links wake it, and so does the oldest issued batch if somebody waits for its
  // end. `for_all` is true if this rank waits for the ends of all batches.
  void arm(bool for_all) noexcept;
  // Gives up all batches and plans. The links have been aborted before.
  void abandon();
  // After abandon(): the operations of the batch that was cut off learn when what it has queued on the device is over.
  // Until then the device uses memory that the program is about to get back.
  void report_rest();
  // Returns the oldest batch that was issued and has not ended, as of the last step(). Empty if there is none.
  std::optional<IssuedBatch> oldest_issued() const;
  // True if the device has not got to the oldest issued batch, because the program's own work before it has not ended.
  bool is_held_up_by_program() const;
  // Adds the ends of all issued batches that have not ended.
  void add_unended(std::vector<EndOnDevice>& ends) const;
  const devices::Device& device() const { return device_; }
  // Returns the rank that the running batch waits for, if the operation is part of that batch; -1 if it is not known.
  Rank waiting_for(const Operation& operation) const;

  // Called when the set was removed. Queued batches are still carried out, then the members part.
  void close();
  bool is_closed() const { return is_closed_; }
  bool is_over() const { return is_closed_ && is_idle(); }

 private:
  enum class Stage : std::uint8_t { sizes, data };
  // The most issued batches. It bounds the events and queues of a device. A host that is further ahead waits.
  static constexpr std::size_t most_issued = 64;
  // By this a planned task is found. The collective is without what may differ from batch to batch of one task.
  struct Kind {
    Collective collective;
    const collectives::Algorithm* algorithm = nullptr;
    friend bool operator==(const Kind&, const Kind&) = default;
  };
  struct HashOfKind {
    std::size_t operator()(const Kind& kind) const;
  };
  // All members keep and forget the same plans.
  using Plans = RecentlyUsed<Kind, std::unique_ptr<Task>, HashOfKind>;

  bool connect_in_time();
  bool waits_for_links(const BatchOfTensors::Move& move);
  void begin_batch();
  void begin_data();
  void begin(const BatchOfTensors::Move& move, Sequence batch);
  Task* find_plan(const Collective& collective, const collectives::Algorithm* algorithm, collectives::Team& team);
  bool refuse();
  void finish(const Error* error);
  bool is_of_host() const { return device_.kind() == DeviceKind::host; }
  void wait_for_inputs(QueuedBatch& batch);
  void issue();
  bool end_issued();
  bool follow_stages();
  bool report_ended_stages(QueuedBatch& batch);
  bool is_full() const { return issued_.size() >= most_issued; }
  bool may_begin() const {
    return !is_full() && (turnstile_ == nullptr || turnstile_->is_open_for(queued_.front().sequence));
  }
  // Returns true if the running batch held the turnstile.
  bool pass_turnstile();
  bool is_there(Event event);

  std::unique_ptr<Teams> teams_;
  devices::Device& device_;
  const World& world_;
  const std::string name_of_device_;
  Counters& counters_;
  const std::vector<Observer*>& observers_;
  Finished finished_;
  Turnstile* const turnstile_;
  const std::function<void()> report_end_;
  std::list<QueuedBatch> queued_;
  std::list<QueuedBatch> issued_;
  std::list<QueuedBatch> idle_;
  Plans plans_{256};  // there are few kinds, if roots are not counted
  BatchOfTensors tensors_;
  std::shared_ptr<void> stream_;  // a stream on which device inputs become ready; made with the links
  Task* task_ = nullptr;
  bool is_connected_ = false;
  std::optional<BatchOfTensors::Move> waiting_;  // begins when the links that it needs are there
  int links_ = 0;                                // that were counted
  std::optional<Clock::time_point> connect_due_;
  bool started_ = false;
  bool follows_stages_ = false;   // of the running batch
  bool holds_turnstile_ = false;  // the running batch has not launched all its work
  const QueuedBatch* cut_off_ = nullptr;
  Event rest_{};
  bool is_closed_ = false;
  std::optional<Error> refusal_;  // the reason why the batch that has just started cannot be carried out
  Stage stage_ = Stage::data;
  Clock::time_point last_end_{};     // of an issued batch
  std::uint64_t task_sequence_ = 0;  // grows with every restart, equally on all members
  std::optional<Error> failure_;
};

}  // namespace hvd::runtime
