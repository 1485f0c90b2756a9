// The C functions with which a runtime begins and ends, and what a process has only once.
#include <pthread.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "api/answer.hpp"
#include "api/callbacks.hpp"
#include "api/current.hpp"
#include "api/runtime_of_c.hpp"
#include "api/stops.hpp"
#include "base/error_ids.hpp"
#include "base/settings/environment.hpp"
#include "bootstrap/launch/owner.hpp"
#include "runtime/session.hpp"

using hvd::ErrorCode;
using hvd::api::copy_in;
using hvd::api::fail;
using hvd::api::id_of;
using hvd::api::in_forked_child;
using hvd::api::is_forked_child;
using hvd::api::missing_struct;
using hvd::api::refuse_in_callback;
using hvd::api::usable;
using hvd::api::wrong_struct;

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

// Rewrites the variables that tell the place, so that the program and its children find the one of this start.
void rewrite_place(hvd_runtime* runtime) {
  hvd_world world{};
  world.struct_size = sizeof world;
  (void)hvd_get_world(runtime, &world);  // cannot fail for a runtime that has just been made
  for (auto [name, value] :
       {std::pair("HOROVOD_RANK", world.rank), std::pair("HOROVOD_SIZE", world.size),
        std::pair("HOROVOD_LOCAL_RANK", world.local_rank), std::pair("HOROVOD_LOCAL_SIZE", world.local_size),
        std::pair("HOROVOD_CROSS_RANK", world.cross_rank), std::pair("HOROVOD_CROSS_SIZE", world.cross_size)})
    ::setenv(name, std::to_string(value).c_str(), 1);  // NOLINT(concurrency-mt-unsafe): as mark_environment()
}

}  // namespace

extern "C" {

hvd_status hvd_init(hvd_runtime** runtime) {
  if (refuse_in_callback("hvd_init")) return HVD_INVALID_ARGUMENT;
  hvd_init_options all{};
  all.struct_size = sizeof all;
  return hvd_init_with(runtime, &all);
}

hvd_status hvd_init_with(hvd_runtime** runtime, const hvd_init_options* options) {
  if (refuse_in_callback("hvd_init_with")) return HVD_INVALID_ARGUMENT;
  if (runtime == nullptr) return fail(ErrorCode::invalid_argument, "hvd_init needs a place for the runtime; got null");
  hvd_init_options given;
  constexpr size_t first_size = offsetof(hvd_init_options, set_ranks);
  if (hvd_status status = copy_in("hvd_init_options", options, first_size, given); status != HVD_OK) return status;
  options = &given;
  if (options->elastic_cause < HVD_ELASTIC_FIRST || options->elastic_cause > HVD_ELASTIC_HOSTS_UPDATED)
    return fail(ErrorCode::invalid_argument,
                "hvd_init_options.elastic_cause is " + std::to_string(options->elastic_cause) + ": expected 0 to 2");
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
  mine.session->set_progress(
      {static_cast<std::uint8_t>(options->elastic_cause), options->elastic_step, options->elastic_keeps != 0});
  auto started =
      is_everybody ? mine.session->start(environment, sets) : mine.session->start(environment, members, sets);
  if (!started) return fail(hvd::identified(started.error(), id_of(started.error().code, "HVD2001", "HVD2003")));
  for (size_t i = 0; i < options->set_comm_count && options->set_comm_ids != nullptr; ++i)
    options->set_comm_ids[i] = sets.numbers_of_communicators[i];
  *runtime = new hvd_runtime{.runtime = std::move(*started)};
  const bool is_elastic = mine.session->assigned() != nullptr;
  (*runtime)->is_elastic = is_elastic;
  if (is_elastic) rewrite_place(*runtime);
  // A job of one rank is not marked, because a child cannot take another rank's place in it. An elastic job may grow.
  if (is_elastic || (*runtime)->runtime->world().size() > 1) {
    mark_environment(false);
    mine.has_been_a_rank = true;
  }
  auto listens = hvd::api::listen_for_stops(*(*runtime)->runtime, environment);
  if (!listens) {
    hvd_shutdown(std::exchange(*runtime, nullptr));
    return fail(listens.error());
  }
  hvd::api::offer_as_current(*runtime);
  return HVD_OK;
}

void hvd_shutdown(hvd_runtime* runtime) {
  if (runtime == nullptr) return;
  // A forked child has a copy of the object, but not the engine's thread. The child must not use the links.
  if (is_forked_child.load() || refuse_in_callback("hvd_shutdown")) return;
  hvd::api::retire_current(runtime);
  bool had_a_place = runtime->is_elastic || runtime->runtime->world().size() > 1;
  hvd::api::forget_stops(*runtime->runtime);
  delete runtime;
  if (had_a_place) mark_environment(true);
}

hvd_status hvd_get_elastic_facts(hvd_elastic_facts* facts) {
  if (facts == nullptr) return missing_struct("hvd_elastic_facts");
  if (facts->struct_size < sizeof(hvd_elastic_facts))
    return wrong_struct("hvd_elastic_facts", sizeof(hvd_elastic_facts), facts->struct_size);
  facts->is_elastic = facts->newcomers = 0;
  facts->epoch = 0;
  Process& mine = process();
  std::unique_lock lock(mine.mutex, std::try_to_lock);  // while this process joins, it has no place yet
  if (!lock || mine.session == nullptr || is_forked_child.load()) return HVD_OK;
  if (const auto* assigned = mine.session->assigned()) {
    facts->is_elastic = 1;
    facts->newcomers = assigned->assignment->newcomers;
    facts->epoch = assigned->assignment->epoch;
  }
  return HVD_OK;
}

int hvd_take_hosts_updated(double* time) {
  Process& mine = process();
  std::unique_lock lock(mine.mutex, std::try_to_lock);
  if (!lock || mine.session == nullptr || is_forked_child.load()) return 0;
  int change = 0;
  for (const auto& news : mine.session->take_news()) {
    change |= news.change;
    if (time != nullptr) *time = news.time;
  }
  return change;
}

void hvd_stop(hvd_runtime* runtime) {
  if (usable(runtime) && !refuse_in_callback("hvd_stop")) runtime->runtime->stop();
}

}  // extern "C"
