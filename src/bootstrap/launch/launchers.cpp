#include "bootstrap/launch/launchers.hpp"

#include <algorithm>

#include "base/panic.hpp"

namespace hvd::bootstrap {
namespace {

constexpr const char* no_pmi_answer =
    "nobody answers on their PMI_FD: let them be direct children of the launcher, without a wrapper that closes "
    "descriptors, or start them with `horovodrun -np {size}`";
constexpr const char* no_pmix_answer =
    "their PMIx server cannot be used from here: install Horovod with its PMIx plugin (in a container: bind "
    "PMIX_SERVER_TMPDIR into it), or start them with `horovodrun -np {size}`";

// Slurm comes late: the daemons of all other launchers are often tasks of a Slurm step, and their ranks inherit Slurm's
// variables.
constexpr LauncherRow rows[] = {
    {.launcher = Launcher::horovodrun,
     .name = "horovodrun",
     .program = "horovodrun",
     .recognised = Recognised::by_variables,
     .sizes = {"HOROVOD_SIZE"},
     .ranks = {"HOROVOD_RANK"},
     .of_launch = {"HOROVOD_SIZE", "HOROVOD_LOCAL_STORE", "HOROVOD_GLOO_RENDEZVOUS_ADDR",
                   "HOROVOD_GLOO_RENDEZVOUS_PORT"},
     .local_ranks = {"HOROVOD_LOCAL_RANK"},
     .local_size = "HOROVOD_LOCAL_SIZE",
     .serves = Serves::pmix,
     .daemons = {"horovodrun", "horovod-agent"},
     .traces = {"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK",
                "HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME", "HOROVOD_OWNER", "HOROVOD_THREAD_SHARE", "HOROVOD_STARTED_AT",
                "HOROVOD_LOCAL_STORE*", "HOROVOD_SECRET_KEY", "_HOROVOD_SECRET_KEY", "HOROVOD_GLOO_RENDEZVOUS_ADDR",
                "HOROVOD_GLOO_RENDEZVOUS_PORT", "HOROVOD_ELASTIC", "HOROVOD_ELASTIC_PROCESS", "HOROVOD_ELASTIC_SLOT"},
     .remedy = "HOROVOD_RANK and HOROVOD_SIZE are set, but another way of starting was used: unset them or "
               "HOROVOD_BOOTSTRAP"},
    {.launcher = Launcher::torchrun,
     .name = "torchrun",
     .program = "torchrun",
     .recognised = Recognised::by_variables,
     .marks = {"TORCHELASTIC_RUN_ID"},
     .sizes = {"WORLD_SIZE"},
     .ranks = {"RANK"},
     .local_ranks = {"LOCAL_RANK"},
     .local_size = "LOCAL_WORLD_SIZE",
     .serves = Serves::nothing,
     .traces = {"TORCHELASTIC_*"},
     .traces_in_ranks = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
                         "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"},
     .remedy = "torchrun serves torch.distributed alone: start them with `horovodrun -np {size}`, or with srun, jsrun "
               "or mpiexec without torchrun"},
    {.launcher = Launcher::intel_mpi,
     .name = "Intel MPI's mpiexec",
     .says = {"Intel(R) MPI"},
     .recognised = Recognised::never,  // Hydra's row recognises its ranks, because they look like Hydra's
     .sizes = {"PMI_SIZE"},
     .ranks = {"PMI_RANK"},
     .of_launch = {"PMI_SIZE", "PMI_FD", "PMI_PORT"},
     .local_ranks = {"MPI_LOCALRANKID"},
     .local_size = "MPI_LOCALNRANKS",
     .serves = Serves::pmi,
     .flags_to_unbind = "mpiexec -genv I_MPI_PIN=0",
     .remedy = no_pmi_answer},
    {.launcher = Launcher::hydra,
     .name = "MPICH's mpiexec",
     .program = "mpiexec.hydra",
     .says = {"HYDRA", "MPICH"},
     .recognised = Recognised::by_pmi_server,
     .marks = {"HYDI_CONTROL_FD", "MPI_LOCALNRANKS"},
     .sizes = {"PMI_SIZE"},
     .ranks = {"PMI_RANK", "PMI_ID"},
     .of_launch = {"PMI_SIZE", "PMI_FD", "PMI_PORT"},
     .local_ranks = {"MPI_LOCALRANKID"},
     .local_size = "MPI_LOCALNRANKS",
     .serves = Serves::pmi,
     .daemons = {"hydra_pmi_proxy", "mpiexec.hydra", "mpiexec", "mpirun"},
     .traces = {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
     .flags_to_unbind = "mpiexec -bind-to none",
     .remedy = no_pmi_answer},
    {.launcher = Launcher::jsm,
     .name = "jsrun",
     .program = "jsrun",
     .recognised = Recognised::by_variables,
     .sizes = {"JSM_NAMESPACE_SIZE"},
     .ranks = {"JSM_NAMESPACE_RANK"},
     .of_launch = {"JSM_NAMESPACE_ID"},
     .local_ranks = {"JSM_NAMESPACE_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"},
     .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .serves = Serves::pmix,
     .traces = {"JSM_JSRUN_PORT", "JSM_NAMESPACE_*", "JSM_GPU_ASSIGNMENTS"},
     .flags_to_unbind = "jsrun --bind none",
     .remedy = "their PMIx server cannot be used from here: install Horovod with its PMIx plugin; `jsrun "
               "--smpiargs=\"-disable_gpu_hooks\"` starts it where --smpiargs=none or off does not"},
    {.launcher = Launcher::open_mpi,
     .name = "Open MPI's mpirun",
     .program = "orterun",
     .says = {"OpenRTE", "Open MPI", "IBM Spectrum MPI"},
     .recognised = Recognised::by_variables,
     .sizes = {"OMPI_COMM_WORLD_SIZE"},
     .ranks = {"OMPI_COMM_WORLD_RANK"},
     .of_launch = {"OMPI_MCA_ess_base_jobid"},
     .local_ranks = {"OMPI_COMM_WORLD_LOCAL_RANK"},
     .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .serves = Serves::pmix,
     .daemons = {"orterun", "orted"},
     .traces = {"OMPI_COMM_WORLD_*", "OMPI_UNIVERSE_SIZE"},
     // orterun refuses to start inside a rank that has these variables.
     .traces_in_ranks = {"OMPI_MCA_ess",
                         "OMPI_MCA_ess_base_jobid",
                         "OMPI_MCA_ess_base_vpid",
                         "OMPI_MCA_initial_wdir",
                         "OMPI_MCA_orte_app_num",
                         "OMPI_MCA_orte_bound_at_launch",
                         "OMPI_MCA_orte_ess_node_rank",
                         "OMPI_MCA_orte_ess_num_procs",
                         "OMPI_MCA_orte_hnp_uri",
                         "OMPI_MCA_orte_jobfam_session_dir",
                         "OMPI_MCA_orte_launch",
                         "OMPI_MCA_orte_local_daemon_uri",
                         "OMPI_MCA_orte_num_nodes",
                         "OMPI_MCA_orte_precondition_transports",
                         "OMPI_MCA_orte_tmpdir_base",
                         "OMPI_MCA_orte_top_session_dir",
                         "OMPI_MCA_pmix",
                         "OMPI_MCA_shmem_RUNTIME_QUERY_hint",
                         "OMPI_APP_CTX_NUM_PROCS",
                         "OMPI_ARGV",
                         "OMPI_COMMAND",
                         "OMPI_FILE_LOCATION",
                         "OMPI_FIRST_RANKS",
                         "OMPI_NUM_APP_CTX"},
     .flags_to_unbind = "mpirun --bind-to none",
     .remedy = no_pmix_answer},
    {.launcher = Launcher::mvapich,
     .name = "MVAPICH's mpirun_rsh",
     .program = "mpirun_rsh",
     .recognised = Recognised::by_variables,
     .sizes = {"MV2_COMM_WORLD_SIZE"},
     .ranks = {"MV2_COMM_WORLD_RANK"},
     .of_launch = {"PMI_PORT"},
     .local_ranks = {"MV2_COMM_WORLD_LOCAL_RANK"},
     .serves = Serves::pmi,
     .remedy = no_pmi_answer},
    {.launcher = Launcher::flux,
     .name = "flux run",
     .program = "flux",
     .recognised = Recognised::by_variables,
     .sizes = {"FLUX_JOB_SIZE"},
     .ranks = {"FLUX_TASK_RANK"},
     .of_launch = {"FLUX_JOB_ID"},
     .local_ranks = {"FLUX_TASK_LOCAL_ID"},
     .nodes = "FLUX_JOB_NNODES",
     .serves = Serves::as_asked,
     .daemons = {"flux-shell", "flux-broker"},
     .flags_to_unbind = "flux run -o cpu-affinity=off",
     .remedy = "start them with `flux run -o pmi=simple` (or -o pmi=pmix where that plugin is there)"},
    {.launcher = Launcher::pals,
     .name = "PALS's mpiexec",
     .says = {"PALS", "pals"},
     .recognised = Recognised::by_variables,
     .marks = {"PALS_RANKID"},
     .sizes = {"PALS_SIZE", "PMI_SIZE"},
     .ranks = {"PALS_RANKID", "PMI_RANK"},
     .of_launch = {"PALS_APID"},
     .local_ranks = {"PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"},
     .local_size = "PALS_LOCAL_SIZE",
     .serves = Serves::as_asked,
     .traces = {"PALS_*"},
     .flags_to_unbind = "mpiexec --cpu-bind none",
     .remedy = "start them with `mpiexec --pmi=pmix`"},
    {.launcher = Launcher::prrte,  // PRRTE, and every other launcher that serves PMIx and is not Slurm
     .name = "a launcher that serves PMIx",
     .program = "prterun",
     .says = {"prterun", "PRRTE", "prte"},
     .recognised = Recognised::by_pmix,
     .ranks = {"PMIX_RANK"},
     .of_launch = {"PMIX_NAMESPACE"},
     .serves = Serves::pmix,
     .daemons = {"prterun", "prted"},
     .traces = {"PMIX_*"},
     .flags_to_unbind = "prterun --bind-to none",
     .remedy = no_pmix_answer},
    {.launcher = Launcher::slurm,
     .name = "srun",
     .program = "srun",
     .recognised = Recognised::by_slurm_step,
     .sizes = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     .ranks = {"SLURM_PROCID"},
     .of_launch = {"SLURM_JOB_ID", "SLURM_STEP_ID"},
     .local_ranks = {"SLURM_LOCALID"},
     .nodes = "SLURM_STEP_NUM_NODES",
     .serves = Serves::as_asked,
     .daemons = {"slurmstepd"},
     .flags_to_unbind = "srun --cpu-bind=none"},
    {.launcher = Launcher::pmi,
     .name = "a launcher that speaks PMI",
     .recognised = Recognised::by_pmi_server,
     .sizes = {"PMI_SIZE"},
     .ranks = {"PMI_RANK", "PMI_ID"},
     .of_launch = {"PMI_SIZE", "PMI_FD", "PMI_PORT"},
     .local_ranks = {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"},
     .local_size = "MPI_LOCALNRANKS",
     .serves = Serves::pmi,
     .traces = {"PMI_*"},
     .remedy = no_pmi_answer},
};

// Else a child of a rank would take another launch for that of the rank, and get no rank of its own.
static_assert(std::ranges::all_of(rows,
                                  [](const LauncherRow& row) {
                                    return row.serves == Serves::nothing ||
                                           (row.ranks.size() > 0 && row.of_launch.size() > 0);
                                  }),
              "a launcher whose ranks join needs `ranks` and `of_launch`");

bool stands_for(std::string_view trace, std::string_view variable) {
  if (trace.ends_with('*')) return variable.starts_with(trace.substr(0, trace.size() - 1));
  return trace == variable;
}

}  // namespace

std::span<const LauncherRow> launchers() {
  return rows;
}

const LauncherRow& row_of(Launcher launcher) {
  for (const LauncherRow& row : rows)
    if (row.launcher == launcher) return row;
  panic("a launcher has no row");
}

bool is_trace_of(const LauncherRow& row, std::string_view variable) {
  return std::ranges::any_of(row.traces, [&](const char* trace) { return stands_for(trace, variable); });
}

bool is_trace_of_launcher(std::string_view variable) {
  // Users set other PMIX_MCA_ variables to configure PMIx itself. Those variables stay.
  if (variable.starts_with("PMIX_MCA_")) return false;
  return std::ranges::any_of(rows, [&](const LauncherRow& row) { return is_trace_of(row, variable); });
}

}  // namespace hvd::bootstrap
