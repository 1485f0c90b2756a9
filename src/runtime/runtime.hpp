#pragma once
// One rank of a job: everything between the C API and the links. It has no global state, so a test can have any number
// of ranks in one process.
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/settings/config.hpp"
#include "base/world.hpp"
#include "connections/device_peers.hpp"
#include "connections/mpi_peers.hpp"
#include "connections/net_peers.hpp"
#include "connections/node_peers.hpp"
#include "connections/thread_hub.hpp"
#include "control/node_board.hpp"
#include "devices/of_rank/devices.hpp"
#include "runtime/engine.hpp"
#include "runtime/lanes/teams.hpp"
#include "runtime/node_memory.hpp"
#include "runtime/observers/profiler_ranges.hpp"
#include "runtime/observers/timeline_switch.hpp"
#include "runtime/operations/callbacks.hpp"
#include "runtime/operations/handle.hpp"
#include "runtime/operations/operation.hpp"
#include "runtime/synchronised.hpp"
#include "topology/layout.hpp"
#include "topology/placement.hpp"
#include "transport/registry.hpp"

namespace hvd::runtime {

// The rank's numbers, with Horovod's names.
struct Position {
  int rank, size, local_rank, local_size, cross_rank, cross_size;
  bool homogeneous;
};

class Runtime {
 public:
  struct Parts {
    World world;
    std::optional<topology::Layout> layout;            // of the world, if the caller has it already
    std::optional<topology::RankPlacement> placement;  // of this rank, if its node has GPUs
    Config config;
    std::shared_ptr<connections::NodePeers> peers;          // null for a single rank, and for ranks that are threads
    std::optional<connections::NetListener> net;            // this rank's endpoints; empty if the job has one node
    std::shared_ptr<connections::ThreadHub> threads;        // set only if the ranks are threads
    std::shared_ptr<connections::MpiPeers> mpi;             // null if the ranks have no common MPI
    std::vector<std::shared_ptr<devices::Device>> devices;  // devices in addition to those of the registry
    std::vector<transport::Maker> transports;               // transports in addition to those of the registry
    std::vector<Observer*> observers;                       // observers from the start; they must outlive the runtime
    std::vector<std::vector<Rank>> sets;         // process sets that exist from the start; ascending, all different
    std::uint32_t most_handles = Handles::most;  // smaller in tests
  };
  // Collective over the world. Blocks until the links are made or the deadline has passed.
  static Result<std::unique_ptr<Runtime>> start(Parts parts, Deadline deadline);
  // Ends the work of all ranks. Waits until this rank has agreed the end with the others.
  void stop() {
    engine_->stop();
    callbacks_->finish();
    timeline_->stop();
  }
  ~Runtime();
  static void* operator new(std::size_t bytes);
  static void operator delete(void* memory);
  // Called instead of the destructor, which it calls unless a device's library hangs.
  static void operator delete(Runtime* runtime, std::destroying_delete_t);

  const World& world() const { return world_; }
  const Position& position() const { return position_; }
  const Config& config() const { return config_; }
  // Returns the number by which this rank's program knows its GPU; -1 without a GPU.
  int local_device() const { return local_device_; }
  // Returns MPI's number for the thread level; -1 if the ranks have no common MPI.
  int mpi_thread_level() const;
  // Null while the runtime runs; afterwards the reason why it ended.
  std::shared_ptr<const Error> ended() const { return engine_->ended(); }

  // For callers on any thread. The caller holds the operation until release(). A transient operation is released with
  // the handle of its use. `set` is the number by which users know the set.
  Result<Operation*> prepare(std::string_view name, Signature signature, int set = 0);
  void release(Operation& operation) { operations_.release(operation); }
  std::size_t operations() const { return operations_.size(); }  // number of operations that are held
  // Starts all operations, or none. Each start needs operation, input, output and the other fields that its verb uses.
  // `early`, if not null, gets the handle's number before a callback of the operations can run.
  Result<Handles::Number> submit(std::span<const Start> starts, Handles::Number* early = nullptr);
  // Starts a transient operation that was prepared for this use, and waits until it is done. The caller releases the
  // handle. If the start is refused, releases the operation.
  Result<HandleCell*> run(const Start& start);
  HandleCell* find(Handles::Number handle) { return handles_.find(handle); }
  void release(HandleCell& handle) {
    if (handles_.release(handle)) engine_->wake();
  }
  // Waits until the handle is done. Makes no stream wait for what devices still have to do.
  bool wait(HandleCell& cell, Deadline deadline) {
    if (cell.is_on_device && deadline.left().count() > 0) engine_->note_wait(cell);
    return handles_.wait(cell, deadline, spin_);
  }
  // True if a wait for the handle does not block the calling thread.
  static bool is_done(const HandleCell& cell) { return Handles::is_done(cell) || ends_with_callback(cell); }
  // What is queued on `stream` after this call runs after the operations have ended on their devices. Without a stream
  // of the program's choice the same holds for the streams of the handle's starts. The handle is done.
  Status order(HandleCell& cell, const std::optional<Stream>& stream = {});
  // Notes that the calling thread has waited for the handle. should_stop() uses this.
  void note_synchronised(const HandleCell& cell) {
    runtime::note_synchronised(handles_.runtime(), cell.set, cell.record);
  }
  // Returns true if the calling thread should leave its loop. The answer is the same at the same step on all ranks of
  // the set. `number` is the set's number as users know it.
  Result<bool> should_stop(int number);
  void request_stop_point(StopCause cause, std::string reason) {
    engine_->stop_point().request(cause, std::move(reason));
  }
  const StopPoint* stop_point() const { return engine_->stop_point().get(); }
  // For a tensor in this memory that is about to be prepared: see devices::Devices::open(). Fails, equally on all
  // members of the set, if one of them cannot work on such memory.
  Status open_device(DeviceKind kind, int ordinal, int set);
  bool has_device(DeviceKind kind) const { return devices_->has(kind); }
  // True if all members of the set can work on such memory.
  Result<bool> has_device(DeviceKind kind, int set) const;
  // Returns null if this rank has no open device of the kind.
  devices::Device* device(DeviceKind kind) const { return devices_->find(kind); }

  // Collective over the world. Both functions block until this rank knows of the change. add_process_set() returns the
  // set's number.
  Result<int> add_process_set(std::vector<Rank> ranks);
  Status remove_process_set(int number);
  CurrentSets process_sets() const { return engine_->sets(); }
  // Returns the set with this number, or an error if there is none.
  Result<ProcessSet> process_set(int number) const;
  const Counters& counters() const { return engine_->counters(); }
  ObserverRegistry& observers() { return engine_->observers(); }
  TimelineSwitch& timeline() { return *timeline_; }

  // Allocates memory for tensors that are reduced in place, if the transport can do that. Collective over the ranks of
  // a node.
  Result<void*> allocate_shared(std::size_t bytes) { return memory_->allocate(bytes); }
  Status free_shared(void* memory) { return memory_->free(memory); }
  // Returns an owner of memory from allocate_shared(). The owner may outlive free_shared() and the runtime. Null if the
  // memory is not from allocate_shared().
  std::shared_ptr<void> hold_shared(void* memory) { return memory_->hold(memory); }

  // Reports that a peer of this node is lost.
  void report_lost(Rank peer) { engine_->report_lost(peer); }

 private:
  explicit Runtime(Parts parts);
  void end();
  Status share_board(Deadline deadline);
  void report_networks() const;
  bool has_come(const EndOnDevice& end, posix::WaitWord& wake) const;
  struct Together {                    // the common state of operations that are started together
    const Operation* first = nullptr;  // the first one with a tensor
    Stream stream;                     // the last stream that was seen, and its position
    Event ready;
    bool has_transients = false;
    bool has_callbacks_on_thread = false;
  };
  Status take(const Start& start, Together& together);
  Status note_extras(const Start& start, Together& together);
  void give_back(Operation& operation);
  Status carry_out(OpNameView name, Signature signature);
  // Runs `action` on every rank's engine at the same point of the schedule, unless a rank passes an error as `mine`.
  // Returns when the action has run here. If this rank passed an error, the result is that error. If only another rank
  // did, the result is an error that refers to that rank.
  Status at_one_point(const std::string& name, const Status& mine, std::function<void()> action);

  World world_;
  Config config_;
  topology::Layout layout_;
  std::shared_ptr<connections::NodePeers> peers_;
  std::shared_ptr<connections::NetPeers> net_;
  std::shared_ptr<connections::ThreadHub> threads_;
  std::shared_ptr<connections::MpiPeers> mpi_;
  const std::shared_ptr<devices::Devices> devices_;
  std::vector<Observer*> observers_;
  std::unique_ptr<ProfilerRanges> profiler_ranges_;
  Position position_;
  const int local_device_;
  connections::DevicePeers device_peers_;  // empty if the ranks have told each other nothing
  bool spin_ = false;
  OperationTable operations_;
  Handles handles_;
  std::unique_ptr<NodeMemory> memory_;
  std::unique_ptr<control::NodeBoard> board_;
  transport::Surroundings surroundings_;
  std::unique_ptr<TeamMaker> teams_;
  std::unique_ptr<CallbackThread> callbacks_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<TimelineSwitch> timeline_;
  std::shared_ptr<void> finalize_watch_;
  std::mutex sets_mutex_;  // allows only one change of process sets at a time
};

}  // namespace hvd::runtime
