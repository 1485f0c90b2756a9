#include "runtime/runtime.hpp"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/log.hpp"
#include "base/settings/environment.hpp"
#include "base/transports.hpp"
#include "native/posix/machine/affinity.hpp"
#include "native/posix/processes/process_end.hpp"
#include "runtime/reports/network_report.hpp"
#include "topology/layout.hpp"

namespace hvd::runtime {

namespace {

using control::NodeBoard;

// The number of slots that are not cached. They serve ops whose names do not come again, and evicted slots that some
// ranks have not yet forgotten.
constexpr std::int64_t spare_slots = 1024;
constexpr std::int64_t most_slots = 1 << 16;

// True if every thread of Horovod on this node can have its own core. An engine may spin only then.
bool cores_for_all(const Position& position) {
  auto mask = posix::affinity();
  long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  return mask && mask->count() >= 2 && online >= 2L * position.local_size;
}

}  // namespace

Runtime::Runtime(Parts parts)
    : world_(std::move(parts.world)),
      config_(std::move(parts.config)),
      layout_(parts.layout ? std::move(*parts.layout) : topology::layout_of(world_)),
      peers_(std::move(parts.peers)),
      threads_(std::move(parts.threads)),
      mpi_(std::move(parts.mpi)),
      devices_(std::make_shared<devices::Devices>(parts.devices, parts.placement ? parts.placement->gpu : -1)),
      observers_(std::move(parts.observers)),
      local_device_(parts.placement ? parts.placement->gpu : -1),
      handles_([](void* table, Operation* operation) { static_cast<OperationTable*>(table)->release(*operation); },
               &operations_, parts.most_handles),
      callbacks_(std::make_unique<CallbackThread>(handles_, [this] { engine_->wake(); })) {
  position_ = {world_.rank.value,      world_.size(),        layout_.node.me.value,   layout_.node.size(),
               layout_.cross.me.value, layout_.cross.size(), layout_.is_homogeneous()};
  spin_ = cores_for_all(position_);
  NodeMemory::Parts memory{
      .world = world_,
      .config = config_,
      .layout = layout_,
      .peers = peers_.get(),
      .threads = threads_.get(),
      .ended = [this] { return engine_ ? ended() : nullptr; },
      .at_one_point = [this](const std::string& name, const Status& mine,
                             std::function<void()> action) { return at_one_point(name, mine, std::move(action)); },
  };
  memory_ = std::make_unique<NodeMemory>(std::move(memory));
}

Result<std::unique_ptr<Runtime>> Runtime::start(Parts parts, Deadline deadline) {
  auto device_peers = connections::DevicePeers::of(parts.world);
  if (!device_peers) return device_peers.error();
  auto net_listener = std::exchange(parts.net, std::nullopt);
  auto sets = std::exchange(parts.sets, {});
  auto transports = std::exchange(parts.transports, {});
  std::unique_ptr<Runtime> runtime(new Runtime(std::move(parts)));
  runtime->device_peers_ = std::move(*device_peers);
  if (runtime->layout_.nodes > 1) {
    if (!net_listener) panic("a world of several nodes needs a listener for the connections between them");
    auto net = connections::NetPeers::start(runtime->world_, runtime->config_, std::move(*net_listener));
    if (!net) return net.error();
    runtime->net_ = std::move(*net);
  }
  HVD_RETURN_IF_ERROR(runtime->share_board(deadline));
  NodeBoard& board = *runtime->board_;
  transport::Surroundings& surroundings = runtime->surroundings_;
  surroundings.world = &runtime->world_;
  surroundings.config = &runtime->config_;
  surroundings.wake = &board.wake_word(board.me());
  surroundings.wake_of = [&board, &node = runtime->layout_.node](Rank rank) {
    Seat seat = node.seat_of(rank);
    return seat.value < 0 ? nullptr : &board.wake_word(seat);
  };
  surroundings.asymmetric_wake = posix::register_asymmetric_barrier();
  surroundings.services = {runtime->threads_, runtime->peers_,   runtime->net_,
                           runtime->mpi_,     runtime->devices_, runtime->memory_->regions()};
  if (runtime->net_) runtime->net_->set_wake(surroundings.wake);
  if (runtime->threads_) runtime->threads_->set_wake(runtime->world_.rank, surroundings.wake);
  auto teams = TeamMaker::make(surroundings, runtime->layout_, transports);
  if (!teams) return teams.error();
  runtime->teams_ = std::move(*teams);

  std::vector<Observer*> observers = runtime->observers_;
  if (!runtime->config_.disable_nvtx_ranges)
    runtime->profiler_ranges_ = ProfilerRanges::for_profiler(Environment::of_this_process());
  if (runtime->profiler_ranges_) observers.push_back(runtime->profiler_ranges_.get());
  Engine::Parts engine{
      .world = runtime->world_,
      .config = runtime->config_,
      .layout = runtime->layout_,
      .board = board,
      .net = runtime->net_.get(),
      .teams = *runtime->teams_,
      .sets = sets,
      .operations = runtime->operations_,
      .handles = runtime->handles_,
      .callbacks = *runtime->callbacks_,
      .has_come = [raw = runtime.get(),
                   wake = surroundings.wake](const EndOnDevice& end) { return raw->has_come(end, *wake); },
      .observers = std::move(observers),
      .spin = runtime->spin_,
  };
  runtime->engine_ = std::make_unique<Engine>(std::move(engine));
  runtime->timeline_ =
      std::make_unique<TimelineSwitch>(runtime->world_, runtime->config_, runtime->engine_->observers());
  runtime->timeline_->start_as_configured();
  if (runtime->peers_) {
    runtime->peers_->set_wake(surroundings.wake);
    // When a process dies, its sockets are closed before its parent is told. The launcher should learn of the death
    // before another rank fails as a result. Otherwise the launcher would take that rank's error for the first failure.
    // Once this rank has failed, too, nobody waits: in an elastic job the peer's process goes on.
    runtime->peers_->on_lost([raw = runtime.get()](Rank peer) {
      if (!raw->board_->has_left(raw->layout_.node.seat_of(peer)) && raw->world_.can_see_process_of(peer)) {
        const Deadline patience = Deadline::after(std::chrono::seconds(1));
        const pid_t process = raw->world_.member(peer).pid;
        bool may_end = posix::handle_of_process(process).get() >= 0;  // else it cannot be watched
        while (may_end && raw->ended() == nullptr && !patience.passed())
          may_end = !posix::wait_for_process_end(process, std::chrono::milliseconds(10));
      }
      raw->engine_->report_lost(peer);
    });
  }
  HVD_RETURN_IF_ERROR(runtime->engine_->start(deadline));
  const Teams& world = runtime->engine_->teams_of_world();
  auto is_of_mpi = [](std::string_view transport) { return transport_row(transport).library == Library::mpi; };
  const bool moves_by_mpi = is_of_mpi(world.transport_inside()) || is_of_mpi(world.transport_between());
  if (runtime->mpi_ && moves_by_mpi)
    runtime->finalize_watch_ = runtime->mpi_->before_finalize([engine = runtime->engine_.get()] {
      engine->stop(
          "the program has ended MPI (MPI_Finalize), by which the ranks are connected; call hvd.shutdown() "
          "(hvd_shutdown) before");
    });
  if (runtime->world_.rank == Rank{0} && log::enabled(log::Level::info)) runtime->report_networks();
  if (runtime->world_.rank == Rank{0} && log::enabled(log::Level::debug))
    log::debug("algorithms by verb and size: " + runtime->teams_->selector().table(world.host()));
  return runtime;
}

void Runtime::report_networks() const {
  Hops hops;
  hops.ranks = world_.size();
  hops.nodes = layout_.nodes;
  hops.inside = engine_->teams_of_world().transport_inside();
  hops.between = engine_->teams_of_world().transport_between();
  if (mpi_) hops.library = mpi_->calls().version();
  if (net_) {
    for (const std::string& name : net_->interfaces_in_use())
      hops.interface += (hops.interface.empty() ? "" : "; ") + describe_interface(name);
  }
  log::info(describe_networks(hops, NetworkFacts::of_this_host(Environment::of_this_process())));
}

int Runtime::mpi_thread_level() const {
  return mpi_ ? static_cast<int>(mpi_->calls().thread_level()) : -1;
}

// If a call into a device's library hangs, it may go on at any time: all that it uses stays, and the process can end.
void Runtime::operator delete(Runtime* runtime, std::destroying_delete_t) {
  static std::mutex mutex;
  static std::vector<Runtime*>& left = *new std::vector<Runtime*>;
  runtime->end();
  if (runtime->engine_ && runtime->engine_->has_stuck_calls()) {
    std::lock_guard lock(mutex);
    left.push_back(runtime);
    return;
  }
  std::destroy_at(runtime);
  operator delete(static_cast<void*>(runtime));
}

// Both are compiled apart, because gcc does not see that a destroying delete fits.
[[gnu::noinline]] void Runtime::operator delete(void* memory) {
  ::operator delete (memory, std::align_val_t{alignof(Runtime)});
}
[[gnu::noinline]] void* Runtime::operator new(std::size_t bytes) {
  return ::operator new (bytes, std::align_val_t{alignof(Runtime)});
}

// Ends the work of this rank, and what writes files of it.
void Runtime::end() {
  finalize_watch_.reset();
  if (engine_) engine_->stop();
  callbacks_->finish();
  timeline_.reset();
}

Runtime::~Runtime() {
  // The engine has given up its tasks. The links must end before the engine object, because the watcher of the links'
  // peers calls the engine.
  if (engine_) engine_->drop_links();
  handles_.leave_used_results([this](const EndOnDevice& end) { return has_come(end, devices::nobody()); });
  teams_.reset();
  surroundings_ = {};
  memory_->drop_regions();
  if (engine_) memory_->leave(engine_->has_ended_in_order());
  peers_.reset();
  engine_.reset();  // before `net`, because it owns the leader's connections
  net_.reset();
}

// Maps the memory in which the ranks of this node agree.
Status Runtime::share_board(Deadline deadline) {
  NodeBoard::Shape shape;
  shape.seats = layout_.node.size();
  shape.slots = static_cast<int>(std::min(std::max<std::int64_t>(config_.cache_capacity, 0) + spare_slots, most_slots));
  auto memory = memory_->map_together("board", NodeBoard::bytes_needed(shape), deadline);
  if (!memory) return memory.error();
  board_ = std::make_unique<NodeBoard>(std::move(*memory), shape, layout_.node.me);
  return {};
}

Result<ProcessSet> Runtime::process_set(int number) const {
  auto sets = engine_->sets();
  if (const ProcessSet* set = sets->numbered(number)) return *set;
  return Error(
      ErrorCode::invalid_argument,
      "process set " + std::to_string(number) +
          " is not known; it was never added (hvd.init(process_sets=...), hvd.add_process_set), or was removed");
}

Result<bool> Runtime::should_stop(int number) {
  const StopPoint* point = stop_point();
  if (point == nullptr && number == 0) return false;
  auto set = process_set(number);
  if (!set) return set.error();
  if (point == nullptr) return false;
  // A rank alone has nobody to agree with, and its loop may have no operations.
  const std::uint64_t waited_for =
      set->ranks.size() == 1 ? std::numeric_limits<std::uint64_t>::max() : synchronised(handles_.runtime(), set->id);
  return engine_->stop_point().acknowledge(*point, waited_for);
}

Status Runtime::open_device(DeviceKind kind, int ordinal, int number) {
  if (kind == DeviceKind::host) return {};
  auto set = process_set(number);
  if (!set) return set.error();
  if (auto lacks = device_peers_.first_without(set->ranks, name_of(kind)); lacks.value >= 0)
    return Error(ErrorCode::unsupported, "the tensor is in " + std::string(name_of(kind)) + " memory, on which " +
                                             describe(world_, lacks) + " cannot work (it has no " + name_of(kind) +
                                             " device, or its installation lacks the plugin); " +
                                             "give tensors in host memory on all ranks (tensor.cpu())");
  auto device = devices_->open(kind, ordinal);
  return device ? Status() : Status(device.error());
}

Result<bool> Runtime::has_device(DeviceKind kind, int number) const {
  auto set = process_set(number);
  if (!set) return set.error();
  return devices_->has(kind) && device_peers_.first_without(set->ranks, name_of(kind)).value < 0;
}

}  // namespace hvd::runtime
