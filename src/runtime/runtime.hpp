#pragma once
// One rank of a job: everything between the C API and the links, assembled. It is an object without globals: a test has
// as many of them in one process as it needs.
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/config.hpp"
#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/world.hpp"
#include "connections/mpi_peers.hpp"
#include "connections/net_peers.hpp"
#include "connections/node_peers.hpp"
#include "connections/thread_hub.hpp"
#include "control/node_board.hpp"
#include "devices/of_rank/devices.hpp"
#include "runtime/engine.hpp"
#include "runtime/handle.hpp"
#include "runtime/observers/timeline_switch.hpp"
#include "runtime/operation.hpp"
#include "runtime/synchronised.hpp"
#include "runtime/teams.hpp"
#include "topology/layout.hpp"
#include "transport/registry.hpp"

namespace hvd::runtime {

// Where this rank stands, in Horovod's words.
struct Position {
  int rank, size, local_rank, local_size, cross_rank, cross_size;
  bool homogeneous;
};

class Runtime {
 public:
  struct Parts {
    World world;
    Config config;
    std::shared_ptr<connections::NodePeers> peers;  // null if one rank is alone, and for threads
    std::optional<connections::NetListener> net;  // the endpoints in the world's members are its own; none on one node
    std::shared_ptr<connections::ThreadHub> threads;        // ranks as threads
    std::shared_ptr<connections::MpiPeers> mpi;             // null without an MPI that all ranks have
    std::vector<std::shared_ptr<devices::Device>> devices;  // beside those of the registry
    std::vector<transport::Maker> transports;               // beside those of the registry
    std::vector<Observer*> observers;                       // outlive the runtime
    std::vector<std::vector<Rank>> sets;  // process sets that exist from the start; ascending, none twice
  };
  // Collective over the world. Blocks until the links are there or the deadline has passed.
  static Result<std::unique_ptr<Runtime>> start(Parts parts, Deadline deadline);
  // Ends the work of all ranks and waits until this one has agreed with them.
  void stop() {
    engine_->stop();
    timeline_->stop();
  }
  ~Runtime();

  const World& world() const { return world_; }
  const Position& position() const { return position_; }
  const Config& config() const { return config_; }
  // MPI's number of this rank; -1 if the ranks have no MPI in common
  int mpi_thread_level() const;
  // Nothing while it runs; else why it does not.
  std::shared_ptr<const Error> ended() const { return engine_->ended(); }

  // For callers, on any thread. The caller holds the operation until release(); a transient one is released with the
  // handle of its use. `set` is the user's number.
  Result<Operation*> prepare(std::string_view name, Signature signature, int set = 0);
  void release(Operation& operation) { operations_.release(operation); }
  std::size_t operations() const { return operations_.size(); }  // that are held
  // Starts all or none; `submissions` need operation, input, output and whatever else their verb takes.
  Result<Handles::Number> submit(std::span<Submission> submissions);
  Handles& handles() { return handles_; }
  bool wait(HandleCell& cell, Deadline deadline) { return handles_.wait(cell, deadline, spin_); }
  // The calling thread has waited for the handle: what should_stop() goes by.
  void note_synchronised(const HandleCell& cell) {
    runtime::note_synchronised(handles_.runtime(), cell.set, cell.record);
  }
  // Whether the calling thread should leave its loop: true at the same step on all ranks of the set. `number` is the
  // user's.
  Result<bool> should_stop(int number);
  void wish_stop_point(StopCause cause, std::string reason) { engine_->wish_stop_point(cause, std::move(reason)); }
  const StopPoint* stop_point() const { return engine_->stop_point(); }
  // Null: this rank has no device of the kind.
  devices::Device* device(DeviceKind kind) const { return devices_->find(kind); }
  bool is_in_callback() const { return Engine::runs_here(); }

  // Collective over the world; they block until this rank knows of the change. add returns the number of the set.
  Result<int> add_process_set(std::vector<Rank> ranks);
  Status remove_process_set(int number);
  std::shared_ptr<const ProcessSets> process_sets() const { return engine_->sets(); }
  // The set of this number, if it exists.
  Result<ProcessSet> process_set(int number) const;
  const Counters& counters() const { return engine_->counters(); }
  ObserverRegistry& observers() { return engine_->observers(); }
  TimelineSwitch& timeline() { return *timeline_; }

  // Memory for tensors that is reduced in place if the transport can do it. Collective over the ranks of a node.
  Result<void*> allocate_shared(std::size_t bytes);
  Status free_shared(void* memory);
  // An owner of memory from allocate_shared, which may live longer than free_shared() and the runtime; null if there is
  // none.
  std::shared_ptr<void> hold_shared(void* memory);

  // A peer of my node is lost.
  void report_lost(Rank peer) { engine_->report_lost(peer); }

 private:
  explicit Runtime(Parts parts);
  Status share_board(Deadline deadline);
  void report_networks() const;
  // Memory of so many bytes that all ranks of my node map, under a name that is used once. Collective over the node.
  Result<std::shared_ptr<void>> map_together(const std::string& name, std::size_t bytes, Deadline deadline);
  // Runs it on every rank's engine at the same point of the schedule, unless a rank comes with an error of its own.
  // Returns when it has run here. The result is the same error, or one that says that another rank had one.
  Status take_starts(std::span<Submission> submissions);
  Status check_set_of(const Submission& submission) const;
  Status note_streams(std::span<Submission> submissions) const;
  Status carry_out(OpNameView name, Signature signature);
  Status at_one_point(const std::string& name, const Status& mine, std::function<void()> action);
  struct Shared {
    std::shared_ptr<void> memory;  // of all ranks of my node
    std::size_t part_bytes;
  };
  void leave_shared();
  Status check(const Signature& signature, const ProcessSet& set) const;

  World world_;
  Config config_;
  topology::Layout layout_;
  std::shared_ptr<connections::NodePeers> peers_;
  std::shared_ptr<connections::NetPeers> net_;
  std::shared_ptr<connections::ThreadHub> threads_;
  std::shared_ptr<connections::MpiPeers> mpi_;
  const std::shared_ptr<devices::Devices> devices_;
  std::vector<Observer*> observers_;
  Position position_;
  bool spin_ = false;
  OperationTable operations_;
  Handles handles_;
  std::unique_ptr<control::NodeBoard> board_;
  transport::Surroundings surroundings_;
  std::unique_ptr<TeamMaker> teams_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<TimelineSwitch> timeline_;
  std::shared_ptr<void> finalize_watch_;
  std::mutex sets_mutex_;  // one change of process sets at a time
  std::mutex shared_mutex_;
  std::map<void*, Shared> shared_;  // by the address of my part
  int shared_calls_ = 0;            // names what the ranks do together; equal on all ranks
};

}  // namespace hvd::runtime
