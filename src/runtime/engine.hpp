#pragma once
// The one thread of a rank that owns all changing state of the runtime: takes submissions, agrees, runs batches.
//
//  1. Submissions come from the inbox. An op whose slot is known marks its arrival; another sends a ballot.
//  2. The engine of a node's lowest rank also leads: the coordinator decides, and the log says what (leader.hpp).
//  3. The log is executed in order: slots are learned and forgotten, batches queue up, the end is the end for all.
//     How a rank ends, whatever the cause, is decided by its departure (departure.hpp), which the engine only asks.
//  4. The batch at the head of the queue runs: task steps, until done; its handles are settled and announced.
//  5. With nothing to do the engine sleeps on its wait word; callers, peers and transports wake it.
#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/config.hpp"
#include "base/world.hpp"
#include "control/node_board.hpp"
#include "runtime/counters.hpp"
#include "runtime/departure.hpp"
#include "runtime/handle.hpp"
#include "runtime/inbox.hpp"
#include "runtime/leader.hpp"
#include "runtime/observer.hpp"
#include "runtime/operation.hpp"
#include "runtime/patience.hpp"
#include "runtime/runner.hpp"
#include "runtime/stall.hpp"
#include "runtime/teams.hpp"

namespace hvd::runtime {

class Engine final : private transport::Exchange {
 public:
  struct Parts {
    const World* world = nullptr;
    const Config* config = nullptr;
    const topology::Layout* layout = nullptr;
    control::NodeBoard* board = nullptr;
    connections::NetPeers* net = nullptr;  // null on one node
    Teams* teams = nullptr;
    OperationTable* operations = nullptr;
    Handles* handles = nullptr;
    std::vector<Observer*> observers;
    bool spin = false;
  };

  explicit Engine(Parts parts);
  ~Engine();

  // Starts the thread; returns when the links of the world are there, or with the reason why not.
  Status start(Deadline deadline);
  Inbox& inbox() { return inbox_; }
  void wake() { board_.wake_word(board_.me()).post(); }
  // Asks all ranks to stop; returns when this engine has. A reason is told to all; without one the program wished it.
  void stop(std::string reason = "");
  // Any thread: a peer is lost. Everything in flight fails, unless the job had agreed to end.
  void report_lost(Rank peer);
  // Why nothing is accepted any more; nothing while it runs.
  std::shared_ptr<const Error> ended() const;
  // After stop(): all ranks had agreed to end, and carried out what was scheduled before.
  bool has_ended_in_order() const { return departure_.is_in_order(); }
  const Counters& counters() const { return counters_; }

 private:
  void run(Deadline start_deadline);
  void connect(Deadline deadline);
  bool progress();
  bool hear_of_the_end();
  bool follow_departure();
  void carry_out(const Departure::Step& step);
  void hold_back();
  bool take_submissions();
  void introduce(Operation& operation);
  bool read_log();
  void execute(const Record& record);
  void learn_slot(const GiveRecord& record);
  void forget_slot(SlotId slot);
  void give_back(SlotId slot);
  void queue_batch(const BatchRecord& record);
  bool run_batches();
  void settle(Operation& operation, const Error* error);
  void end(const Error& reason);
  void take_last_submissions();
  void send(const Request& request);
  bool send_waiting();
  std::chrono::nanoseconds longest_sleep() const;
  bool watch_for_stalls();
  Clock::time_point waits_since(const Operation& operation) const;

  // transport::Exchange, over the log
  Status put(std::string_view key, ConstBytes value) override;
  Result<bool> get(Rank from, std::string_view key, Buffer& value) override;

  const World& world_;
  const Config& config_;
  const topology::Layout& layout_;
  control::NodeBoard& board_;
  Teams& teams_;
  const connections::NetPeers* net_;  // null on one node
  OperationTable& operations_;
  Handles& handles_;
  std::vector<Observer*> observers_;
  bool spin_;

  Inbox inbox_;
  std::thread thread_;
  std::mutex stop_mutex_;
  std::string stop_reason_;  // written before the request
  std::atomic<bool> stop_requested_{false};
  std::atomic<int> lost_rank_{-1};
  mutable std::mutex ended_mutex_;
  std::shared_ptr<const Error> ended_;
  std::atomic<std::uint32_t> started_{0};  // 1: running, 2: failed; waited for by start()

  // The thread's own:
  Departure departure_;
  std::optional<Clock::time_point> departure_due_;  // it is to be asked again by then
  bool has_tree_ = false;                           // the leaders of the nodes can talk to each other
  std::unique_ptr<Leader> leader_;                  // on the lowest rank of each node
  std::vector<NameEntry*> slots_;                   // by slot
  std::vector<Operation*> in_flight_;               // everything submitted and not settled; each knows its place
  std::vector<SlotId> batch_slots_;
  std::list<Buffer> unsent_;
  Buffer scratch_;
  std::map<std::pair<std::int32_t, std::string>, Buffer, std::less<>> published_;
  std::unique_ptr<Runner> runner_;
  StallWatch stalls_;
  Clock::time_point batch_moved_;  // one began or ended
  Counters counters_;
};

}  // namespace hvd::runtime
