#pragma once
// Runs agreed batches one after the other: finds or plans the task of a batch, restarts it with the batch's tensors and
// steps it. In steady state nothing is planned and nothing is allocated.
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "base/recently_used.hpp"
#include "runtime/counters.hpp"
#include "runtime/observer.hpp"
#include "runtime/operation.hpp"
#include "runtime/teams.hpp"

namespace hvd::runtime {

class Runner {
 public:
  // `finished` gets every operation of a batch that is over, and the error if it failed.
  using Finished = std::function<void(Operation&, Sequence, const Error*)>;

  Runner(Teams& teams, const World& world, Counters& counters, const std::vector<Observer*>& observers,
         Finished finished);

  // Opens a batch at the end of the queue; the caller fills in its operations.
  std::vector<Operation*>& queue(Sequence sequence);
  int batches_in_flight() const { return static_cast<int>(queued_.size()); }
  // True if a batch began or ended. After a failure of the links the error is in failure(), and the batch stays in flight. A batch that nobody can
  // carry out fails by itself, alike on all ranks; the next ones are run.
  bool step();
  const Error* failure() const { return failure_ ? &*failure_ : nullptr; }
  // Gives up everything, plans included. The links have been aborted.
  void abandon();
  // Whom the running batch waits for; Seat{-1} if none runs.
  Seat waiting_for() const { return started_ && task_ != nullptr ? task_->waiting_for() : Seat{-1}; }
  const std::vector<Operation*>* running() const { return queued_.empty() ? nullptr : &queued_.front().operations; }

 private:
  struct Batch {
    Sequence sequence;
    std::vector<Operation*> operations;
  };
  // What a planned task fits. Not the scales, which the task is told before every batch.
  struct Kind {
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
  // Equal on all ranks, in what they hold and in what they forget.
  using Plans = RecentlyUsed<Kind, std::unique_ptr<Task>, HashOfKind>;
  enum class Stage : std::uint8_t { data, sizes };  // allgather: the sizes go first

  void start(Batch& batch);
  void start_sizes(Batch& batch);
  void start_gather(Batch& batch);
  void begin(const Collective& collective, Sequence sequence);
  Task* find_plan(const Collective& collective, const collectives::Algorithm* algorithm);
  bool refuse();
  void finish(const Error* error);

  Teams& teams_;
  const World& world_;
  Counters& counters_;
  const std::vector<Observer*>& observers_;
  Finished finished_;
  std::list<Batch> queued_;
  std::list<Batch> idle_;
  Plans plans_{256};   // the kinds are few, but for the roots
  Plans gathers_{32};  // those with counts; results of changing sizes need a plan each
  Kind wanted_;        // keeps its memory
  Task* task_ = nullptr;
  const char* algorithm_name_ = "";
  bool started_ = false;
  std::optional<Error> refusal_;  // of the batch that was just started
  Stage stage_ = Stage::data;
  std::uint64_t task_sequence_ = 0;  // rises with every restart, equally on all ranks
  std::vector<Segment> in_;
  std::vector<Segment> out_;
  std::vector<std::int64_t> ones_;  // one element from each
  std::vector<std::int64_t> rows_;  // of an allgather, by seat
  std::vector<std::int64_t> counts_;
  std::int64_t my_rows_ = 0;
  std::optional<Error> failure_;
};

}  // namespace hvd::runtime
