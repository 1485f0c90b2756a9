// The C functions of horovod.h. They check arguments, keep each thread's last error, refuse forked children, and call
// one Runtime.
#include "api/horovod.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "api/answer.hpp"
#include "api/runtime_of_c.hpp"
#include "api/stops.hpp"
#include "base/config.hpp"
#include "base/error_ids.hpp"
#include "bootstrap/launch/owner.hpp"
#include "native/mpi/process.hpp"
#include "runtime/runtime.hpp"
#include "runtime/session.hpp"

using hvd::Error;
using hvd::ErrorCode;
using hvd::api::copy_in;
using hvd::api::fail;
using hvd::api::last_error;
using hvd::api::status_of;
using hvd::api::usable;
using hvd::api::why_unusable;
using hvd::api::wrong_struct;
using hvd::runtime::Handles;
using hvd::runtime::Runtime;

struct hvd_shared_hold_s {
  std::shared_ptr<void> memory;
};
// A hvd_op* is the address of the Operation itself.
static hvd::runtime::Operation* from_c(hvd_op* op) {
  return reinterpret_cast<hvd::runtime::Operation*>(op);
}
static hvd_op* to_c(hvd::runtime::Operation* operation) {
  return reinterpret_cast<hvd_op*>(operation);
}

namespace {

// The state that a process has only once, even if it starts several runtimes. It is never destroyed, because libraries
// of launchers must not be called from static destructors.
struct Process {
  std::mutex mutex;  // only one init at a time
  hvd::runtime::Session* session = nullptr;
  hvd::Environment of_another_launch;  // variables inherited from a rank of another job that started this one
  bool has_been_a_rank = false;
};
Process& process() {
  static auto* instance = new Process;
  return *instance;
}

// Set in a child that was forked after hvd_init(). The child shares its parent's links and must not use them.
std::atomic<bool> is_forked_child{false};

// What the ranks fail with together has a name of its own (base/error_ids).
std::string_view id_of(ErrorCode code, std::string_view otherwise, std::string_view of_timeout) {
  switch (code) {
    case ErrorCode::mismatch: return "HVD2101";
    case ErrorCode::peer_lost: return "HVD2102";
    case ErrorCode::timeout: return of_timeout;
    default: return otherwise;
  }
}

hvd_status no_runtime() {
  return fail(ErrorCode::not_initialized, "Horovod has not been initialized; call hvd.init() first (hvd_init in C)");
}
hvd_status in_forked_child() {
  return fail(
      ErrorCode::invalid_argument,
      "this process was forked from a rank after hvd.init(); only the rank itself may communicate. Do the work of "
      "the child without Horovod, or send its result to the rank");
}

}  // namespace

bool hvd::api::usable(const hvd_runtime* runtime) {
  return runtime != nullptr && !is_forked_child.load(std::memory_order_relaxed);
}
hvd_status hvd::api::why_unusable(const hvd_runtime* runtime) {
  return runtime == nullptr ? no_runtime() : in_forked_child();
}

namespace {

// Refuses a child process of a rank. It inherits the rank's environment, and so it looks like the rank itself.
hvd_status check_owner(const hvd::Environment& environment) {
  if (is_forked_child.load()) return in_forked_child();
  if (pid_t owner = hvd::bootstrap::owner_of_place(environment); owner != 0)
    return fail(ErrorCode::invalid_argument,
                "this process (" + std::to_string(::getpid()) + ") is a child of the rank in process " +
                    std::to_string(owner) +
                    " and inherited its environment; it cannot join the job in its parent's place. Remove the call of "
                    "hvd.init() from the child, or unset " +
                    hvd::bootstrap::owner_variable + " and the launcher's variables to run alone");
  return HVD_OK;
}

// Returns the launcher's variables for this process, without the variables of a rank that started the launcher. After
// this process has marked the environment itself, these two kinds cannot be distinguished; the kinds found before that
// are used.
hvd::Environment environment_of_launch(Process& mine, const hvd::Environment& all) {
  if (!mine.has_been_a_rank) {
    mine.of_another_launch = {};
    hvd::Environment own = hvd::bootstrap::of_this_launch(all);
    for (const auto& [name, value] : all.variables())
      if (!own.has(name)) mine.of_another_launch.set(name, value);
  }
  hvd::Environment own = all;
  for (const auto& [name, value] : mine.of_another_launch.variables())
    if (all.get(name) == value) own.erase(name);
  return own;
}

void mark_environment(bool has_left) {
  std::string mark = hvd::bootstrap::owner_mark(hvd::Environment::of_this_process(), has_left);
  ::setenv(hvd::bootstrap::owner_variable, mark.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): children inherit it
}

void take_position(const hvd::runtime::Position& position, hvd_world& world) {
  world.rank = position.rank;
  world.size = position.size;
  world.local_rank = position.local_rank;
  world.local_size = position.local_size;
  world.cross_rank = position.cross_rank;
  world.cross_size = position.cross_size;
  world.is_homogeneous = position.homogeneous;
}

hvd_status read_reduction(const hvd_op_description& description, int size, hvd::runtime::Signature& signature) {
  signature.prescale = description.prescale;
  signature.postscale = description.postscale;
  switch (description.reduce_op) {
    case HVD_AVERAGE: signature.postscale *= 1.0 / size; return HVD_OK;  // a sum with 1/n in the postscale
    case HVD_SUM: return HVD_OK;
    case HVD_MIN: signature.op = hvd::ReduceOp::min; return HVD_OK;
    case HVD_MAX: signature.op = hvd::ReduceOp::max; return HVD_OK;
    case HVD_PRODUCT: signature.op = hvd::ReduceOp::product; return HVD_OK;
    case HVD_ADASUM:
      if (signature.verb == hvd::Verb::allreduce) {
        signature.verb = hvd::Verb::adasum;
        return HVD_OK;
      }
      return fail(ErrorCode::unsupported, "reducescatter does sums and averages, not Adasum");
  }
  return fail(ErrorCode::invalid_argument,
              "reduce operation " + std::to_string(description.reduce_op) +
                  " is not known; expected average (0), sum (1), Adasum (2), min (3), max (4) or product (5)");
}

// `size` is the number of ranks in the process set.
hvd_status read_description(const hvd_op_description& description, int size, hvd::runtime::Signature& signature) {
  auto invalid = [](const std::string& text) { return fail(ErrorCode::invalid_argument, text); };
  if (description.name == nullptr) return invalid("an operation needs a name; hvd_op_description.name is null");
  if (description.verb < HVD_ALLREDUCE || description.verb > HVD_JOIN)
    return invalid("hvd_op_description.verb is " + std::to_string(description.verb) + "; expected an hvd_verb");
  if (description.dtype < HVD_BOOL || description.dtype > HVD_FLOAT64)
    return invalid("hvd_op_description.dtype is " + std::to_string(description.dtype) + "; expected an hvd_dtype");
  if (description.dimensions < 0 || description.dimensions > HVD_MAX_DIMENSIONS)
    return invalid("hvd_op_description.dimensions is " + std::to_string(description.dimensions) + "; expected 0 to " +
                   std::to_string(HVD_MAX_DIMENSIONS));
  if (description.dimensions > 0 && description.shape == nullptr) return invalid("hvd_op_description.shape is null");
  if (description.device < HVD_HOST || description.device > HVD_CUDA)
    return invalid("hvd_op_description.device is " + std::to_string(description.device) + "; expected an hvd_device");
  signature.verb = static_cast<hvd::Verb>(description.verb);
  signature.dtype = static_cast<hvd::DataType>(description.dtype);
  signature.transient = description.transient != 0;
  if (description.group != nullptr) signature.group = std::hash<std::string_view>{}(description.group) | 1;
  const hvd::VerbRow& row = signature.row();
  if (row.has_tensor()) signature.device = static_cast<hvd::DeviceKind>(description.device);
  if (row.has_tensor()) signature.shape.assign(description.shape, description.shape + description.dimensions);
  if (row.agreed == hvd::VerbRow::Agreed::all_but_first && !signature.shape.empty()) signature.shape[0] = 0;
  if (row.has_root()) signature.root = hvd::Rank{description.root_rank};
  return row.reduces() ? read_reduction(description, size, signature) : HVD_OK;
}

// Checks that there is a number of rows for each rank, and that the sum of these numbers is the input's number of rows.
hvd_status check_splits(const hvd_start_arguments& use, const hvd::runtime::Operation& operation, size_t members) {
  auto invalid = [&](const std::string& text) {
    return fail(ErrorCode::invalid_argument, "alltoall '" + operation.entry->name + "': " + text);
  };
  if (use.splits == nullptr) {
    if (use.first_dimension % static_cast<int64_t>(members) == 0) return HVD_OK;
    return invalid("without splits the " + std::to_string(use.first_dimension) + " rows have to be a multiple of the " +
                   std::to_string(members) + " ranks; give the rows for each rank as splits");
  }
  if (use.split_count != members)
    return invalid("splits has " + std::to_string(use.split_count) + " numbers; expected one for each of the " +
                   std::to_string(members) + " ranks");
  int64_t rows = 0;
  for (size_t i = 0; i < members; ++i) {
    if (use.splits[i] < 0) return invalid("splits[" + std::to_string(i) + "] is " + std::to_string(use.splits[i]));
    if (__builtin_add_overflow(rows, use.splits[i], &rows)) rows = INT64_MAX;
  }
  if (rows <= use.first_dimension) return HVD_OK;
  return invalid("splits add up to " + std::to_string(rows) + " rows; the tensor has " +
                 std::to_string(use.first_dimension));
}

// Refuses an output that shares a part of the input's memory. Results there would depend on who is first.
hvd_status check_overlap(const hvd_start_arguments& use, const hvd::runtime::Operation& operation,
                         const Runtime& runtime) {
  const auto in = reinterpret_cast<std::uintptr_t>(use.input), out = reinterpret_cast<std::uintptr_t>(use.output);
  const std::uintptr_t input_bytes = static_cast<std::uintptr_t>(operation.count) * size_of(operation.signature.dtype);
  const std::uintptr_t distance = out > in ? out - in : in - out;
  if (distance == 0 || distance >= input_bytes) return HVD_OK;
  if (out < in && operation.signature.row().outcome == hvd::VerbRow::Outcome::share) {
    auto sets = runtime.process_sets();
    const auto* set = sets->find(operation.entry->set);
    if (set == nullptr) return HVD_OK;  // a removed set is refused later
    const auto mine = std::lower_bound(set->ranks.begin(), set->ranks.end(), runtime.world().rank);
    const int64_t rows = operation.signature.shape[0];
    const int64_t share =
        hvd_rows_of(rows, static_cast<int>(mine - set->ranks.begin()), static_cast<int>(set->ranks.size()));
    if (distance >= input_bytes / static_cast<std::uintptr_t>(rows) * static_cast<std::uintptr_t>(share)) return HVD_OK;
  }
  return fail(ErrorCode::invalid_argument,
              "'" + operation.entry->name +
                  "': input and output overlap; give the same memory for both, or memory without a common part");
}

hvd_status check_use(const hvd_start_arguments& use, const Runtime& runtime) {
  if (use.op == nullptr) return fail(ErrorCode::invalid_argument, "hvd_start_arguments.op is null");
  const hvd::runtime::Operation& operation = *from_c(use.op);
  const hvd::VerbRow& row = operation.signature.row();
  if (use.stream != nullptr && operation.signature.device == hvd::DeviceKind::host)
    return fail(ErrorCode::invalid_argument, "hvd_start_arguments.stream is given for a tensor in host memory");
  bool has_rows_of_its_own = row.agreed == hvd::VerbRow::Agreed::all_but_first;
  if (has_rows_of_its_own && use.first_dimension < 0)
    return fail(ErrorCode::invalid_argument,
                "first_dimension is " + std::to_string(use.first_dimension) + "; expected 0 or more");
  bool has_input = operation.count > 0 && (!has_rows_of_its_own || use.first_dimension > 0);
  bool needs_output = row.outcome == hvd::VerbRow::Outcome::as_input;
  if (has_input && (use.input == nullptr || (needs_output && use.output == nullptr)))
    return fail(ErrorCode::invalid_argument,
                "'" + operation.entry->name + "' has elements and needs " +
                    (needs_output ? "an input and an output" : "an input") +
                    "; got null: the tensor has no memory of its own (a meta tensor, a wrapper of others)");
  if (use.output != use.input && use.output != nullptr && use.input != nullptr && !has_rows_of_its_own)
    if (hvd_status status = check_overlap(use, operation, runtime); status != HVD_OK) return status;
  if (row.sizes != hvd::VerbRow::Sizes::splits) return HVD_OK;
  auto sets = runtime.process_sets();
  const hvd::runtime::ProcessSet* set = sets->find(operation.entry->set);
  return set == nullptr ? HVD_OK : check_splits(use, operation, set->ranks.size());  // a removed set is refused later
}

hvd::runtime::HandleCell* find_handle(hvd_runtime* runtime, hvd_handle handle) {
  return runtime->runtime->handles().find(handle);
}
hvd_status no_such_handle() {
  return fail(ErrorCode::invalid_argument, "there is no such handle; it was released, or never given out");
}

// Returns the result that the runtime kept for this operation. Returns null and sets the error if there is none.
hvd::runtime::KeptResult* find_result(hvd_runtime* runtime, hvd_handle handle, size_t index) {
  hvd::runtime::HandleCell* cell = find_handle(runtime, handle);
  if (cell == nullptr) {
    (void)no_such_handle();
    return nullptr;
  }
  if (!Handles::is_done(*cell)) {
    (void)fail(ErrorCode::invalid_argument, "the handle is not done; wait for it first");
    return nullptr;
  }
  if (index >= cell->results.size() || !cell->results[index].data) {
    (void)fail(ErrorCode::invalid_argument, "the handle keeps no result of operation " + std::to_string(index));
    return nullptr;
  }
  return &cell->results[index];
}

// Calls the on_done function of a program.
void call_back(void (*function)(), void* context, const Error* error) {
  using OnDone = void (*)(void*, hvd_status, const char*);
  auto* on_done = reinterpret_cast<OnDone>(function);
  on_done(context, error == nullptr ? HVD_OK : status_of(error->code), error == nullptr ? "" : error->message.c_str());
}

// Refuses a function that waits when it is called in a callback: callbacks run on the engine's thread, and all
// operations wait for that thread.
bool refuse_in_callback(const char* function) {
  if (!hvd::runtime::Engine::runs_here()) return false;
  (void)fail(ErrorCode::invalid_argument,
             std::string(function) +
                 " was called in a callback on completion (on_done), whose thread must not wait; "
                 "start operations there, and wait elsewhere");
  return true;
}

hvd_status read_sets(const hvd_init_options& options, hvd::runtime::StaticSets& sets) {
  if (options.set_count > 0 && (options.set_ranks == nullptr || options.set_sizes == nullptr))
    return fail(ErrorCode::invalid_argument, "hvd_init_options.set_count is " + std::to_string(options.set_count) +
                                                 ", but set_ranks or set_sizes is null");
  const int* next = options.set_ranks;
  for (size_t i = 0; i < options.set_count; ++i) {
    std::vector<hvd::Rank>& set = sets.listed.emplace_back();
    for (size_t k = 0; k < options.set_sizes[i]; ++k) set.emplace_back(*next++);
  }
  for (size_t i = 0; i < options.set_comm_count; ++i) sets.communicators.push_back(options.set_comms[i]);
  sets.communicator_bytes = options.mpi_comm_size;
  return HVD_OK;
}

}  // namespace

extern "C" {

const char* hvd_last_error(void) {
  return last_error().c_str();
}
const char* hvd_version(void) {
  return HVD_VERSION;
}

hvd_status hvd_init(hvd_runtime** runtime) {
  hvd_init_options all{};
  all.struct_size = sizeof all;
  return hvd_init_with(runtime, &all);
}

hvd_status hvd_init_with(hvd_runtime** runtime, const hvd_init_options* options) {
  if (runtime == nullptr) return fail(ErrorCode::invalid_argument, "hvd_init needs a place for the runtime; got null");
  hvd_init_options given;
  constexpr size_t first_size = offsetof(hvd_init_options, set_ranks);
  if (hvd_status status = copy_in("hvd_init_options", options, first_size, given); status != HVD_OK) return status;
  options = &given;
  if (options->mpi_comm != nullptr && options->ranks != nullptr)
    return fail(ErrorCode::invalid_argument,
                "hvd_init_options names a communicator and a list of ranks; give one of the two");
  *runtime = nullptr;
  hvd::Environment all = hvd::Environment::of_this_process();
  if (hvd_status status = check_owner(all); status != HVD_OK) return status;
  Process& mine = process();
  std::lock_guard lock(mine.mutex);
  if (mine.session == nullptr) {
    mine.session = new hvd::runtime::Session;
    ::pthread_atfork(nullptr, nullptr, [] { is_forked_child.store(true); });
  }
  hvd::Environment environment = environment_of_launch(mine, all);
  hvd::bootstrap::Members members;
  members.mpi_communicator = options->mpi_comm;
  members.handle_bytes = options->mpi_comm_size;
  if (options->ranks != nullptr) members.ranks = {options->ranks, options->rank_count};
  bool is_everybody = members.mpi_communicator == nullptr && members.ranks.empty();
  hvd::runtime::StaticSets sets;
  if (hvd_status status = read_sets(*options, sets); status != HVD_OK) return status;
  auto started =
      is_everybody ? mine.session->start(environment, sets) : mine.session->start(environment, members, sets);
  if (!started) return fail(hvd::identified(started.error(), id_of(started.error().code, "HVD2001", "HVD2003")));
  for (size_t i = 0; i < options->set_comm_count && options->set_comm_ids != nullptr; ++i)
    options->set_comm_ids[i] = sets.numbers_of_communicators[i];
  // A job of one rank is not marked, because a child cannot take another rank's place in it.
  if ((*started)->world().size() > 1) {
    mark_environment(false);
    mine.has_been_a_rank = true;
  }
  *runtime = new hvd_runtime{std::move(*started)};
  auto listens = hvd::api::listen_for_stops(*(*runtime)->runtime, environment);
  if (listens) return HVD_OK;
  hvd_shutdown(std::exchange(*runtime, nullptr));
  return fail(listens.error());
}

void hvd_shutdown(hvd_runtime* runtime) {
  if (runtime == nullptr) return;
  // A forked child has a copy of the object, but not the engine's thread. The child must not use the links.
  if (is_forked_child.load()) return;
  bool had_a_place = runtime->runtime->world().size() > 1;
  hvd::api::forget_stops(*runtime->runtime);
  delete runtime;
  if (had_a_place) mark_environment(true);
}

void hvd_stop(hvd_runtime* runtime) {
  if (usable(runtime) && !refuse_in_callback("hvd_stop")) runtime->runtime->stop();
}

hvd_status hvd_get_world(hvd_runtime* runtime, hvd_world* world) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (world == nullptr || world->struct_size < sizeof(hvd_world))
    return wrong_struct("hvd_world", sizeof(hvd_world), world == nullptr ? 0 : world->struct_size);
  take_position(runtime->runtime->position(), *world);
  return HVD_OK;
}

int hvd_mpi_built(void) {
  hvd::Environment environment = hvd::runtime::environment_with_files();
  for (const char* abi : hvd::mpi::abis())
    if (hvd::mpi::has_plugin(abi, environment)) return 1;
  return 0;
}

int hvd_mpi_thread_level(hvd_runtime* runtime) {
  return usable(runtime) ? runtime->runtime->mpi_thread_level() : -1;
}

int hvd_is_running(hvd_runtime* runtime) {
  return usable(runtime) && runtime->runtime->ended() == nullptr;
}

hvd_status hvd_add_process_set(hvd_runtime* runtime, const int* ranks, size_t count, int* id) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (refuse_in_callback("hvd_add_process_set")) return HVD_INVALID_ARGUMENT;
  if ((ranks == nullptr && count > 0) || id == nullptr)
    return fail(ErrorCode::invalid_argument, "hvd_add_process_set needs ranks and a place for the id; got null");
  if (!runtime->runtime->config().dynamic_process_sets)
    return fail(ErrorCode::invalid_argument,
                "process sets can be added and removed after the start only if HOROVOD_DYNAMIC_PROCESS_SETS=1 was set "
                "before it (hvd.init(process_sets=\"dynamic\") does that); else list them in init");
  std::vector<hvd::Rank> members;
  for (size_t i = 0; i < count; ++i) members.emplace_back(ranks[i]);
  auto added = runtime->runtime->add_process_set(members);
  std::sort(members.begin(), members.end());
  if (const auto* known = runtime->runtime->process_sets()->of(members)) *id = known->number;
  return added ? HVD_OK : fail(added.error());
}

hvd_status hvd_remove_process_set(hvd_runtime* runtime, int id) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (refuse_in_callback("hvd_remove_process_set")) return HVD_INVALID_ARGUMENT;
  if (!runtime->runtime->config().dynamic_process_sets)
    return fail(ErrorCode::invalid_argument,
                "process sets can be added and removed after the start only if HOROVOD_DYNAMIC_PROCESS_SETS=1 was set "
                "before it (hvd.init(process_sets=\"dynamic\") does that)");
  if (id == 0) return fail(ErrorCode::invalid_argument, "the global process set (0) cannot be removed");
  auto removed = runtime->runtime->remove_process_set(id);
  return removed ? HVD_OK : fail(removed.error());
}

int hvd_process_set_ids(hvd_runtime* runtime, int* ids, int capacity) {
  if (!usable(runtime)) {
    (void)why_unusable(runtime);
    return -1;
  }
  std::vector<int> all;
  for (const auto& [id, set] : runtime->runtime->process_sets()->all()) all.push_back(set.number);
  std::sort(all.begin(), all.end());
  if (ids != nullptr)
    std::copy_n(all.begin(), std::min<size_t>(all.size(), static_cast<size_t>(std::max(capacity, 0))), ids);
  return static_cast<int>(all.size());
}

hvd_status hvd_process_set(hvd_runtime* runtime, int id, int* rank, int* size, int* ranks, int capacity) {
  if (!usable(runtime)) return why_unusable(runtime);
  auto found = runtime->runtime->process_set(id);
  if (!found) return fail(found.error());
  const std::vector<hvd::Rank>& members = found->ranks;
  auto mine = std::lower_bound(members.begin(), members.end(), runtime->runtime->world().rank);
  bool is_member = mine != members.end() && *mine == runtime->runtime->world().rank;
  if (rank != nullptr) *rank = is_member ? static_cast<int>(mine - members.begin()) : -1;
  if (size != nullptr) *size = static_cast<int>(members.size());
  for (size_t i = 0; ranks != nullptr && i < members.size() && static_cast<int>(i) < capacity; ++i)
    ranks[i] = members[i].value;
  return HVD_OK;
}

int64_t hvd_rows_of(int64_t rows, int place, int size) {
  if (rows < 0 || size < 1 || place < 0 || place >= size) return -1;
  return rows / size + (place < rows % size ? 1 : 0);
}

hvd_status hvd_prepare(hvd_runtime* runtime, const hvd_op_description* description, hvd_op** op) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (description == nullptr || op == nullptr)
    return fail(ErrorCode::invalid_argument, "hvd_prepare needs a description and a place for the operation; got null");
  hvd_op_description given;
  constexpr size_t first_size = offsetof(hvd_op_description, device);
  if (hvd_status status = copy_in("hvd_op_description", description, first_size, given); status != HVD_OK)
    return status;
  int size = runtime->runtime->world().size();
  if (given.process_set != 0) {
    auto set = runtime->runtime->process_set(given.process_set);
    if (!set) return fail(set.error());
    size = static_cast<int>(set->ranks.size());
  }
  hvd::runtime::Signature signature;
  if (hvd_status status = read_description(given, size, signature); status != HVD_OK) return status;
  if (const auto* device = runtime->runtime->device(signature.device);
      device && device->ordinal() != given.device_ordinal)
    return fail(ErrorCode::invalid_argument, "'" + std::string(given.name) + "' lies on " + name_of(signature.device) +
                                                 " device " + std::to_string(given.device_ordinal) +
                                                 "; the device of this rank is " + std::to_string(device->ordinal()) +
                                                 ": keep its tensors there (torch.cuda.set_device)");
  auto prepared = runtime->runtime->prepare(given.name, std::move(signature), given.process_set);
  if (!prepared) return fail(prepared.error());
  *op = to_c(*prepared);
  return HVD_OK;
}

void hvd_op_release(hvd_runtime* runtime, hvd_op* op) {
  if (usable(runtime) && op != nullptr) runtime->runtime->release(*from_c(op));
}

HVD_API hvd_status hvd_start_1_1(hvd_runtime* runtime, const hvd_start_arguments* arguments, size_t count,
                                 hvd_handle* handle);

// The struct of the first release, which did not begin with its size. hvd_start@HVD_1.0 still takes it.
struct hvd_start_arguments_1_0 {
  hvd_op* op;
  const void* input;
  void* output;
  int64_t first_dimension;
};

HVD_API hvd_status hvd_start_1_0(hvd_runtime* runtime, const hvd_start_arguments_1_0* arguments, size_t count,
                                 hvd_handle* handle) {
  if (arguments == nullptr || count == 0) return hvd_start_1_1(runtime, nullptr, count, handle);
  std::vector<hvd_start_arguments> all(count);
  for (size_t i = 0; i < count; ++i) {
    all[i] = hvd_use_of(arguments[i].op, arguments[i].input, arguments[i].output);
    all[i].first_dimension = arguments[i].first_dimension;
  }
  return hvd_start_1_1(runtime, all.data(), count, handle);
}

HVD_API hvd_status hvd_start_1_1(hvd_runtime* runtime, const hvd_start_arguments* arguments, size_t count,
                                 hvd_handle* handle) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (arguments == nullptr || handle == nullptr || count == 0)
    return fail(ErrorCode::invalid_argument, "hvd_start needs at least one operation and a place for the handle");
  // A few starts fit into memory on the stack. That memory is not cleared first, because clearing it would cost more
  // than one start.
  std::byte on_stack[16 * sizeof(hvd::runtime::Start)];
  std::pmr::monotonic_buffer_resource room(on_stack, sizeof on_stack);
  std::pmr::vector<hvd::runtime::Start> starts(&room);
  starts.reserve(count);
  // The least size is that of the first release in which the struct begins with its size. Fields added later are not
  // required.
  constexpr size_t least = offsetof(hvd_start_arguments, context) + sizeof(void*);
  const size_t step = arguments->struct_size;
  for (size_t i = 0; i < count; ++i) {
    hvd_start_arguments use;
    const auto* place = reinterpret_cast<const std::byte*>(arguments) + i * step;
    const auto* given = reinterpret_cast<const hvd_start_arguments*>(place);
    if (step == sizeof use) use = *given;
    else if (hvd_status status = copy_in("hvd_start_arguments", given, least, use); status != HVD_OK) return status;
    if (use.struct_size != sizeof use) return wrong_struct("hvd_start_arguments", sizeof use, use.struct_size);
    if (hvd_status status = check_use(use, *runtime->runtime); status != HVD_OK) return status;
    hvd::runtime::Start& start = starts.emplace_back();
    start.operation = from_c(use.op);
    start.input = use.input;
    start.output = use.output;
    start.first_dimension = use.first_dimension;
    start.stream = {use.stream};
    if (use.splits != nullptr) start.splits = {use.splits, use.split_count};
    if (use.on_done != nullptr) start.on_done = {&call_back, reinterpret_cast<void (*)()>(use.on_done), use.context};
  }
  auto number = runtime->runtime->submit(starts);
  if (!number) return fail(number.error());
  *handle = *number;
  return HVD_OK;
}
__asm__(".symver hvd_start_1_0, hvd_start@HVD_1.0");
__asm__(".symver hvd_start_1_1, hvd_start@@HVD_1.1");

int hvd_poll(hvd_runtime* runtime, hvd_handle handle) {
  if (!usable(runtime)) return -1;
  hvd::runtime::HandleCell* cell = find_handle(runtime, handle);
  if (cell == nullptr) return -1;
  return Handles::is_done(*cell) ? 1 : 0;
}

hvd_status hvd_wait(hvd_runtime* runtime, hvd_handle handle, int64_t timeout_ms) {
  if (!usable(runtime)) return why_unusable(runtime);
  hvd::runtime::HandleCell* cell = find_handle(runtime, handle);
  if (cell == nullptr) return no_such_handle();
  if (!Handles::is_done(*cell)) {
    if (refuse_in_callback("hvd_wait")) return HVD_INVALID_ARGUMENT;
    auto deadline =
        timeout_ms < 0 ? hvd::Deadline::never() : hvd::Deadline::after(std::chrono::milliseconds(timeout_ms));
    if (!runtime->runtime->wait(*cell, deadline))
      return fail(ErrorCode::timeout, "not done within " + std::to_string(timeout_ms) + " ms; it goes on");
  }
  runtime->runtime->note_synchronised(*cell);
  if (!cell->error) return HVD_OK;
  std::string_view id = id_of(cell->error->code, "", "HVD2103");
  return id.empty() ? fail(*cell->error) : fail(hvd::identified(*cell->error, id));
}

void hvd_release(hvd_runtime* runtime, hvd_handle handle) {
  if (!usable(runtime)) return;
  if (hvd::runtime::HandleCell* cell = find_handle(runtime, handle)) runtime->runtime->handles().release(*cell);
}

hvd_status hvd_result_shape(hvd_runtime* runtime, hvd_handle handle, size_t index, int* dimensions,
                            int64_t shape[HVD_MAX_DIMENSIONS]) {
  if (!usable(runtime)) return why_unusable(runtime);
  const auto* result = find_result(runtime, handle, index);
  if (result == nullptr) return HVD_INVALID_ARGUMENT;
  *dimensions = static_cast<int>(result->shape.size());
  std::copy(result->shape.begin(), result->shape.end(), shape);
  return HVD_OK;
}

hvd_status hvd_result_splits(hvd_runtime* runtime, hvd_handle handle, size_t index, int64_t* splits, size_t count) {
  if (!usable(runtime)) return why_unusable(runtime);
  const auto* result = find_result(runtime, handle, index);
  if (result == nullptr) return HVD_INVALID_ARGUMENT;
  if (splits == nullptr || count != result->splits.size())
    return fail(ErrorCode::invalid_argument, "the result has rows of " + std::to_string(result->splits.size()) +
                                                 " ranks; room was given for " + std::to_string(count));
  std::copy(result->splits.begin(), result->splits.end(), splits);
  return HVD_OK;
}

hvd_status hvd_result_take(hvd_runtime* runtime, hvd_handle handle, size_t index, void** data, void** owner,
                           void (**free_data)(void* owner), hvd_device* device) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (data == nullptr || owner == nullptr || free_data == nullptr)
    return fail(ErrorCode::invalid_argument, "hvd_result_take needs places for the data, its owner and how to free it");
  auto* result = find_result(runtime, handle, index);
  if (result == nullptr) return HVD_INVALID_ARGUMENT;
  if (device != nullptr) *device = static_cast<hvd_device>(result->device);
  const auto parts = result->data.release();
  *data = parts.data;
  *owner = parts.owner;
  *free_data = parts.free_owner;
  return HVD_OK;
}

hvd_status hvd_result_copy(hvd_runtime* runtime, hvd_handle handle, size_t index, void* destination, size_t bytes) {
  if (!usable(runtime)) return why_unusable(runtime);
  const auto* result = find_result(runtime, handle, index);
  if (result == nullptr) return HVD_INVALID_ARGUMENT;
  if (bytes != result->bytes)
    return fail(ErrorCode::invalid_argument, "the result has " + std::to_string(result->bytes) +
                                                 " bytes; room was given for " + std::to_string(bytes));
  if (result->device != hvd::DeviceKind::host)
    return fail(ErrorCode::unsupported, std::string("the result lies in ") + name_of(result->device) +
                                            " memory; take it over (hvd_result_take), and copy it on a stream");
  if (bytes > 0) std::memcpy(destination, result->data.data(), bytes);
  return HVD_OK;
}

hvd_status hvd_shared_allocate(hvd_runtime* runtime, size_t bytes, void** memory) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (memory == nullptr || bytes == 0)
    return fail(ErrorCode::invalid_argument, "hvd_shared_allocate needs a size above 0 and a place for the memory");
  auto allocated = runtime->runtime->allocate_shared(bytes);
  if (!allocated) return fail(allocated.error());
  *memory = *allocated;
  return HVD_OK;
}

void hvd_shared_free(hvd_runtime* runtime, void* memory) {
  if (!usable(runtime) || memory == nullptr) return;
  if (auto freed = runtime->runtime->free_shared(memory); !freed) (void)fail(freed.error());
}

hvd_shared_hold_t* hvd_shared_hold(hvd_runtime* runtime, void* memory) {
  if (!usable(runtime)) return nullptr;
  auto owner = runtime->runtime->hold_shared(memory);
  return owner ? new hvd_shared_hold_s{std::move(owner)} : nullptr;
}

void hvd_shared_drop(hvd_shared_hold_t* hold) {
  delete hold;
}

hvd_status hvd_timeline_start(hvd_runtime* runtime, const char* path, int mark_cycles) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (refuse_in_callback("hvd_timeline_start")) return HVD_INVALID_ARGUMENT;
  if (path == nullptr || *path == '\0')
    return fail(ErrorCode::invalid_argument, "hvd_timeline_start needs the path of a file; got none");
  auto started = runtime->runtime->timeline().start(path, mark_cycles != 0);
  return started ? HVD_OK : fail(started.error());
}

hvd_status hvd_timeline_stop(hvd_runtime* runtime) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (refuse_in_callback("hvd_timeline_stop")) return HVD_INVALID_ARGUMENT;
  runtime->runtime->timeline().stop();
  return HVD_OK;
}

int64_t hvd_counter(hvd_runtime* runtime, const char* name) {
  if (!usable(runtime) || name == nullptr) return -1;
  const hvd::runtime::Counters& counters = runtime->runtime->counters();
  const std::pair<const char*, const hvd::runtime::Counter&> table[] = {
      {"submissions", counters.submissions},
      {"requests_sent", counters.requests_sent},
      {"log_records", counters.log_records},
      {"log_bytes", counters.log_bytes},
      {"batches", counters.batches},
      {"plans", counters.plans},
      {"engine_sleeps", counters.engine_sleeps},
      {"frames_sent", counters.frames_sent},
      {"frames_received", counters.frames_received},
      {"frame_bytes_sent", counters.frame_bytes_sent},
      {"frame_bytes_received", counters.frame_bytes_received},
  };
  for (const auto& [known, counter] : table)
    if (std::strcmp(known, name) == 0) return counter.get();
  if (std::strcmp("operations", name) == 0) return static_cast<int64_t>(runtime->runtime->operations());
  return -1;
}

hvd_status hvd_visit_settings(void (*visit)(void*, const char*, const char*, const char*), void* context) {
  auto settings = hvd::runtime::settings_of_this_process();
  if (!settings) return fail(settings.error());
  for (const hvd::Setting& setting : *settings)
    visit(context, setting.name.c_str(), setting.value.c_str(), setting.origin().c_str());
  return HVD_OK;
}
void hvd_visit_knobs(void (*visit)(void*, const char*, const char*, const char*, const char*), void* context) {
  for (const hvd::KnobRow& row : hvd::knobs()) visit(context, row.name, row.kind, row.default_value, row.meaning);
}

}  // extern "C"
