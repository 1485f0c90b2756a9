#include "bootstrap/launch/launch.hpp"

#include <sys/stat.h>

#include <string_view>

#include "base/number.hpp"

namespace hvd::bootstrap {
namespace {

// Slurm's own steps, which run no ranks: the interactive shell of salloc, the batch script, the container of foreign
// processes, one that is pending.
constexpr unsigned long first_special_step = 4294967290ul;

struct Row {
  Launcher launcher;
  const char* name;
  const char* size;           // the number of processes; also what must be there
  const char* rank;           // must be there too
  const char* another_trace;  // must be there as well, unless null
};
// Innermost first, as far as one is ever inside of another. Slurm comes last: the daemons of all others are often its
// tasks, and their ranks inherit its variables.
constexpr Row rows[] = {
    {Launcher::horovodrun, "horovodrun", "HOROVOD_SIZE", "HOROVOD_RANK", nullptr},
    {Launcher::jsm, "jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", nullptr},
    {Launcher::open_mpi, "Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", nullptr},
    {Launcher::mvapich, "MVAPICH's mpirun_rsh", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", nullptr},
    {Launcher::flux, "flux run", "FLUX_JOB_SIZE", "FLUX_TASK_RANK", nullptr},
    {Launcher::pals, "PALS's mpiexec", "PALS_SIZE", "PALS_RANKID", nullptr},
    {Launcher::pals, "PALS's mpiexec", "PMI_SIZE", "PMI_RANK", "PALS_RANKID"},
};

std::optional<Launch> of_row(const Environment& environment, const Row& row) {
  auto size = environment.number(row.size);
  auto rank = environment.number(row.rank);
  if (!size || !rank || (row.another_trace != nullptr && !environment.has(row.another_trace))) return std::nullopt;
  return Launch{row.launcher, row.name, *size, *rank, std::string(row.size) + "=" + std::to_string(*size)};
}

bool is_slurm_task(const Environment& environment) {
  auto step = number_in<unsigned long>(environment.get("SLURM_STEP_ID").value_or(""));
  return step && *step < first_special_step && environment.has("SLURM_PROCID");
}

std::optional<Launch> of_slurm(const Environment& environment) {
  if (!is_slurm_task(environment)) return std::nullopt;
  // SLURM_NTASKS is the allocation's where the step was made from within; of a heterogeneous step, whose components
  // count for themselves in SLURM_STEP_NUM_TASKS, only it knows the whole.
  const char* name = environment.has("SLURM_HET_SIZE") ? "SLURM_NTASKS" : "SLURM_STEP_NUM_TASKS";
  if (!environment.has(name)) name = "SLURM_NTASKS";
  int size = environment.number(name).value_or(0);
  return Launch{Launcher::slurm, "srun", size, environment.number("SLURM_PROCID").value_or(-1),
                std::string(name) + "=" + std::to_string(size)};
}

// Who set the variables of a PMI server that is there. Slurm's are told by the step's.
std::optional<Launch> of_pmi(const Environment& environment, bool of_hydra) {
  bool marked = environment.has("HYDI_CONTROL_FD") || environment.has("MPI_LOCALNRANKS");
  if (marked != of_hydra) return std::nullopt;
  auto size = environment.number("PMI_SIZE");
  int rank = environment.number("PMI_RANK").value_or(environment.number("PMI_ID").value_or(-1));
  auto launcher = of_hydra ? Launcher::hydra : Launcher::pmi;
  const char* name = of_hydra ? "MPICH's mpiexec" : "a launcher that speaks PMI";
  if (size) return Launch{launcher, name, *size, rank, "PMI_SIZE=" + std::to_string(*size)};
  int here = environment.number("MPI_LOCALNRANKS").value_or(0);  // PMI_PORT alone: the server knows the size
  return Launch{launcher, name, here > 1 ? here : 0, rank,
                here > 1 ? "MPI_LOCALNRANKS=" + std::to_string(here) : "PMI_PORT is set"};
}

bool is_namespace_of_slurm(const Environment& environment) {
  return environment.get("PMIX_NAMESPACE").value_or("").starts_with("slurm.pmix.");
}

}  // namespace

bool is_socket_of_this_process(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode);
}

bool has_pmi_server(const Environment& environment, IsSocket is_socket) {
  if (auto descriptor = environment.number("PMI_FD")) return is_socket(*descriptor);
  return environment.has("PMI_PORT") && environment.has("PMI_ID");
}

std::optional<Launch> innermost_launch(const Environment& environment, IsSocket is_socket) {
  if (auto launch = of_row(environment, rows[0])) return launch;
  bool pmi = has_pmi_server(environment, is_socket);
  if (pmi)
    if (auto launch = of_pmi(environment, true)) return launch;
  for (const Row& row : rows)
    if (auto launch = of_row(environment, row)) return launch;
  // PRRTE tells the number of ranks through PMIx alone; so does whatever else serves PMIx and is not Slurm.
  if (environment.has("PMIX_NAMESPACE") && !is_namespace_of_slurm(environment)) {
    int rank = environment.number("PMIX_RANK").value_or(-1);
    return Launch{Launcher::prrte, "a launcher that serves PMIx", rank > 0 ? rank + 1 : 0, rank,
                  "PMIX_RANK=" + environment.get("PMIX_RANK").value_or("")};
  }
  auto slurm = of_slurm(environment);
  // Without a server (PMI_FD of a launcher further out) or with Slurm's own these say nothing new.
  if (slurm && (!pmi || environment.number("PMI_SIZE") == slurm->size)) return slurm;
  if (pmi)
    if (auto launch = of_pmi(environment, false)) return launch;
  if (slurm) return slurm;
  // Nobody can be asked, but somebody said so.
  auto size = environment.number("PMI_SIZE");
  auto rank = environment.number("PMI_RANK");
  if (size && rank)
    return Launch{Launcher::pmi, "a launcher that speaks PMI", *size, *rank, "PMI_SIZE=" + std::to_string(*size)};
  return std::nullopt;
}

}  // namespace hvd::bootstrap
