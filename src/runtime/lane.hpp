#pragma once
// Runs the batches of one process set in one kind of memory one after the other, in the order of the log: finds or
// plans the task of a batch, restarts it with the batch's tensors and steps it. In steady state nothing is planned
// and nothing is allocated.
//
// A task for tensors on a device may be issued: what is left of its batch happens there, and the next batch begins.
// Where the caller gave a stream, that waits for the end of the batch and the operation is over; else it is over when
// the end is there.
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "base/recently_used.hpp"
#include "runtime/batch.hpp"
#include "runtime/counters.hpp"
#include "runtime/observer.hpp"
#include "runtime/teams.hpp"

namespace hvd::runtime {

class Lane {
 public:
  struct Parts {
    std::unique_ptr<Teams> teams;
    const World* world = nullptr;
    Counters* counters = nullptr;
    const std::vector<Observer*>* observers = nullptr;
    Finished finished;
  };
  explicit Lane(Parts parts);

  // Makes the links. Before the first batch, else as it begins.
  Progress connect();
  Teams& teams() { return *teams_; }

  // Opens a batch at the end of the queue; the caller fills in its operations.
  std::vector<Operation*>& queue(Sequence sequence);
  int batches_in_flight() const { return static_cast<int>(queued_.size()); }  // but for the issued ones
  bool is_idle() const { return queued_.empty() && issued_.empty(); }
  // True if a batch began or ended. After a failure of the links the error is in failure(), and the batch stays in
  // flight. A batch that nobody can carry out fails by itself, alike on all members; the next ones are run.
  bool step();
  const Error* failure() const { return failure_ ? &*failure_ : nullptr; }
  // Gives up everything, plans included. The links have been aborted.
  void abandon();
  // Whom the running batch waits for, if the operation is one of it; -1 if that is not known.
  Rank waiting_for(const Operation& operation) const;

  // The set was removed: what is queued is still carried out, then the members part.
  void close();
  bool is_closed() const { return is_closed_; }
  bool is_over() const { return is_closed_ && is_idle(); }

 private:
  enum class Stage : std::uint8_t { sizes, data };
  // What a planned task fits. Not the scales, which the task is told before every batch.
  struct Kind {
    DeviceKind device = DeviceKind::host;
    Verb verb = Verb::barrier;
    DataType dtype = DataType::u8;
    ReduceOp op = ReduceOp::sum;
    Seat root;
    const collectives::Algorithm* algorithm = nullptr;
    std::vector<std::int64_t> counts;
    friend bool operator==(const Kind&, const Kind&) = default;
  };
  struct HashOfKind {
    std::size_t operator()(const Kind& kind) const;
  };
  // Equal on all members, in what they hold and in what they forget.
  using Plans = RecentlyUsed<Kind, std::unique_ptr<Task>, HashOfKind>;

  void begin_batch();
  void begin_data();
  void begin(const BatchOfTensors::Move& move, Sequence batch);
  Task* find_plan(const Collective& collective, const collectives::Algorithm* algorithm, collectives::Team& team);
  bool refuse();
  void finish(const Error* error);
  bool is_of_host() const { return device_.kind() == DeviceKind::host; }
  void wait_for_inputs();
  void issue();
  bool end_issued();
  bool is_there(Event event);
  void fail(const Error& error);

  std::unique_ptr<Teams> teams_;
  devices::Device& device_;
  const World& world_;
  Counters& counters_;
  const std::vector<Observer*>& observers_;
  Finished finished_;
  std::list<QueuedBatch> queued_;
  std::list<QueuedBatch> issued_;
  std::list<QueuedBatch> idle_;
  Plans plans_{256};         // the kinds are few, but for the roots
  Plans plans_by_seat_{64};  // those with counts; results of changing sizes need a plan each
  Kind wanted_;              // keeps its memory
  BatchOfTensors tensors_;
  std::shared_ptr<void> stream_;  // where the inputs of device tensors are ready; made with the links
  Task* task_ = nullptr;
  bool is_connected_ = false;
  bool started_ = false;
  bool is_closed_ = false;
  std::optional<Error> refusal_;  // of the batch that was just started
  Stage stage_ = Stage::data;
  std::uint64_t task_sequence_ = 0;  // rises with every restart, equally on all members
  std::optional<Error> failure_;
};

}  // namespace hvd::runtime
