#include "bootstrap/launch/guard.hpp"

#include <string_view>

#include "base/error_ids.hpp"

namespace hvd::bootstrap {

namespace {

std::string remedy_for_srun(const Environment& environment) {
  std::string used = environment.get("SLURM_MPI_TYPE").value_or("");
  if (used.empty() || used == "none" || used == "openmpi" || used == "cray_shasta")
    return "start them with `srun --mpi=pmix` (or `srun --mpi=pmi2`; `srun --mpi=list` tells what there is) "
           "instead of --mpi=" +
           (used.empty() ? "none" : used) + ", or set HOROVOD_SHARED_DIR to a folder that all nodes see";
  if (used.starts_with("pmix"))
    return "the PMIx server that `srun --mpi=" + used +
           "` started was not used: install Horovod with its PMIx plugin, or use `srun --mpi=pmi2`";
  if (used == "pmi2") return "use `srun --mpi=pmix`: nobody answers on the PMI_FD of `srun --mpi=pmi2`";
  return "start them with `srun --mpi=pmix` (or `srun --mpi=pmi2`; `srun --mpi=list` tells what there is)";
}

}  // namespace

std::string remedy(const Launch& launch, const Environment& environment) {
  const char* known = row_of(launch.launcher).remedy;
  if (known == nullptr) return remedy_for_srun(environment);
  constexpr std::string_view size_word = "{size}";
  std::string text = known;
  if (auto at = text.find(size_word); at != std::string::npos)
    text.replace(at, size_word.size(), std::to_string(launch.size));
  return text;
}

Status check_singleton(int world_size, const Environment& environment, const Config& config, IsSocket is_socket,
                       ListAncestors list_ancestors, CountTasks count_tasks_of) {
  if (world_size != 1 || config.allow_singleton) return {};
  auto launch = innermost_launch(environment, is_socket);
  std::string advice;
  if (launch) {
    advice = remedy(*launch, environment);
  } else {
    launch = launch_above(list_ancestors(), count_tasks_of);
    advice =
        "what the launcher told them has been taken out of their environment: let it through (a container without "
        "--cleanenv, no `env -i` and no `unset` before the command)";
  }
  if (!launch || launch->size < 2) return {};
  std::string who = launch->rank < 0 ? "this process" : "process " + std::to_string(launch->rank);
  Error error(ErrorCode::unsupported,
              who + " is one of " + std::to_string(launch->size) + " that " + launch->name + " started together (" +
                  launch->evidence + "), but found none of the others; each of them would train alone: " + advice +
                  ". If every process is meant to run for itself, set HOROVOD_ALLOW_SINGLETON=1");
  return identified(std::move(error), "HVD2002");
}

}  // namespace hvd::bootstrap
