#pragma once
// The one thread of a rank that owns all changing state of the runtime. It takes submissions, agrees and runs batches.
//
// 1. Submissions come from the inbox. The engine marks an arrival at the slot of an op, or sends a ballot for an
//    op without a slot.
// 2. The engine of a node's lowest rank is also the leader: the coordinator decides, and the log holds its decisions
//    (leader.hpp).
// 3. The log is executed in order: slots are learned and forgotten, and batches are queued. The end of the log is the
//    end for all ranks. The departure (departure.hpp) decides how a rank ends; the engine only asks it.
// 4. The batch at the head of the queue runs: its task is stepped until it is done. Then its handles are settled and
//    announced.
// 5. With nothing to do the engine sleeps on its wait word. Callers, peers and transports wake it.
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/settings/config.hpp"
#include "base/world.hpp"
#include "control/node_board.hpp"
#include "runtime/agreement/outbox.hpp"
#include "runtime/agreement/stall.hpp"
#include "runtime/ending/departure.hpp"
#include "runtime/ending/patience.hpp"
#include "runtime/ending/stop_point.hpp"
#include "runtime/follower.hpp"
#include "runtime/inbox.hpp"
#include "runtime/lanes/runner.hpp"
#include "runtime/lanes/teams.hpp"
#include "runtime/leader.hpp"
#include "runtime/observers/registry.hpp"
#include "runtime/operations/counters.hpp"
#include "runtime/operations/handle.hpp"
#include "runtime/operations/operation.hpp"
#include "runtime/operations/process_sets.hpp"
#include "runtime/operations/rank_context.hpp"

namespace hvd::runtime {

class Engine {
 public:
  struct Parts {
    const World& world;
    const Config& config;
    const topology::Layout& layout;
    control::NodeBoard& board;
    connections::NetPeers* net;  // null if the job has one node
    const TeamMaker& teams;
    const std::vector<std::vector<Rank>>&
        sets;  // process sets that exist from the start; only the constructor reads it
    OperationTable& operations;
    Handles& handles;
    CallbackThread& callbacks;
    Handles::HasCome has_come;         // wakes this engine later if the answer is no
    std::vector<Observer*> observers;  // the observers that are there from the start; observers() adds later ones
    bool spin;
  };

  explicit Engine(Parts parts);
  ~Engine();

  // Starts the thread. Returns when the links of the world exist, or returns the reason why they could not be made.
  Status start(Deadline deadline);
  Inbox& inbox() { return inbox_; }
  void wake() { board_.wake_word(board_.me()).post(); }
  // A thread of the program is about to wait for the handle, whose tensors are in device memory. Any thread.
  void note_wait(HandleCell& handle) {
    if (handle.is_waited_for.exchange(true, std::memory_order_acq_rel) || Handles::is_done(handle)) return;
    has_new_wait_.store(true, std::memory_order_release);
    wake();
  }
  // Asks all ranks to stop. Returns when this engine has stopped. A reason is told to all ranks; without one the
  // program itself asked for it.
  void stop(std::string reason = "");
  // May be called on any thread when a peer is lost. Everything in flight fails, unless the job had already agreed to
  // end.
  void report_lost(Rank peer);
  StopPointOfRank& stop_point() { return stop_point_; }
  // Returns why nothing is accepted any more; null while the engine runs.
  std::shared_ptr<const Error> ended() const;
  // Tells whether the results of a done handle will be complete. Any thread. Waits for the end of the last calls on
  // devices, if they are under way.
  struct Completeness {
    Status status;          // an error if a device had not ended the operations when this rank's work ended
    bool may_order = true;  // streams may wait for the ends on the device: they come
  };
  Completeness completeness_of(const HandleCell& cell) const;
  // After stop(): true if a call into a device's library hangs. Then this engine and all that it uses must never be
  // destroyed.
  bool has_stuck_calls() const { return losses_.load(std::memory_order_acquire) == Losses::stuck; }
  // After stop(): true if all ranks had agreed to end and had carried out what was scheduled before.
  bool has_ended_in_order() const { return departure_.is_in_order(); }
  // May be called on any thread. Returns the process sets as of the records that this rank has read.
  CurrentSets sets() const { return follower_.sets(); }
  // Only after start(); for reports.
  const Teams& teams_of_world() const { return runner_->world().teams(); }
  // Only after stop(): destroys the links, which nothing uses any more.
  void drop_links() { runner_.reset(); }
  const Counters& counters() const { return counters_; }
  ObserverRegistry& observers() { return observers_; }

 private:
  void finished(Operation& operation, Sequence batch, const Error* error, Event end);
  void run(Deadline start_deadline);
  void connect(Deadline deadline);
  bool progress();
  bool check_for_end();
  bool follow_departure();
  void carry_out(const Departure::Step& step);
  void hold_back();
  bool take_submissions();
  bool read_log();
  void execute(const Record& record);
  bool run_batches();
  void end(const Error& reason);
  std::string describe_work() const;
  std::chrono::nanoseconds longest_sleep() const;
  bool watch_for_stalls();
  void report_stall(const Operation& operation, double waited_s, bool final);
  void report_stall_on_device(const Runner::OldestIssued& issued, double waited_s, bool final);
  void report_to_leader(const StallRequest& stall);
  Clock::time_point waits_since(const Operation& operation) const;

  const World& world_;
  const Config& config_;
  const topology::Layout& layout_;
  control::NodeBoard& board_;
  const connections::NetPeers* net_;  // null if the job has one node
  Handles& handles_;
  const Handles::HasCome has_come_;
  ObserverRegistry observers_;
  bool spin_;

  Inbox inbox_;
  std::thread thread_;
  std::mutex stop_mutex_;
  std::string stop_reason_;  // written before stop_requested_ is set
  std::atomic<bool> stop_requested_{false};
  std::atomic<int> lost_rank_{-1};
  std::atomic<bool> has_new_wait_{false};
  StopPointOfRank stop_point_;
  mutable std::mutex ended_mutex_;
  std::shared_ptr<const Error> ended_;
  // How far the end is. `lost_ends_` is written before `none` is left.
  enum class Losses : std::uint8_t { none, ending, over, stuck };
  std::atomic<Losses> losses_{Losses::none};
  std::vector<EndOnDevice> lost_ends_;
  std::atomic<std::uint32_t> started_{0};  // 1 if the engine runs, 2 if its start has failed; start() waits for one of
                                           // them

  // Only the engine's thread uses these:
  Counters counters_;
  const RankContext rank_;
  Outbox outbox_;
  Departure departure_;
  std::optional<Clock::time_point> departure_due_;  // the departure must be asked again by then
  bool has_tree_ = false;                           // the leaders of the nodes can talk to each other
  std::unique_ptr<Leader> leader_;                  // null unless this is the lowest rank of its node
  RecordStorage storage_;
  std::unique_ptr<Runner> runner_;
  Follower follower_;
  StallWatch stalls_;
  Clock::time_point batch_moved_;      // the last time that a batch began or ended
  bool has_told_final_stall_ = false;  // of a batch on a device
  bool has_finished_some_ = false;     // operations have ended since the last look at the batches
};

}  // namespace hvd::runtime
