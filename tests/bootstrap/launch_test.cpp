// Environments of launchers, as seen on real systems, and what must be recognised in them.
#include "bootstrap/launch/launch.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <set>

#include "bootstrap/launch/guard.hpp"
#include "bootstrap/launch/launchers.hpp"

namespace hvd::bootstrap {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

struct Row {
  const char* what;
  Variables variables;
  bool pmi_fd_is_open;
  // The expected result. A size of 0: launched, but the environment does not tell how many ranks there are.
  std::optional<Launcher> launcher;
  int size = 1;
  int rank = -1;
  const char* advice = nullptr;  // a part of the guard's message for a world of one; null: the guard accepts the world
};

Variables operator+(Variables left, const Variables& right) {
  left.insert(right.begin(), right.end());
  return left;
}

const Variables allocation = {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_NNODES", "2"}};
const Variables step_of_four =
    allocation + Variables{{"SLURM_STEP_ID", "0"},        {"SLURM_PROCID", "2"}, {"SLURM_LOCALID", "0"},
                           {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_NODES", "2"}};
const Variables within_components = {{"SLURM_HET_SIZE", "2"}, {"SLURM_NTASKS", "6"}};
// The variables of a Slurm step whose tasks are daemons of another launcher, one per node. Its ranks inherit them.
const Variables step_of_daemons =
    allocation +
    Variables{{"SLURM_STEP_ID", "3"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "2"}};
const Variables pmix_of_slurm = {{"SLURM_MPI_TYPE", "pmix"}, {"PMIX_NAMESPACE", "slurm.pmix.7.0"}, {"PMIX_RANK", "2"}};
const Variables hydra = {{"PMI_FD", "6"},          {"PMI_RANK", "3"},        {"PMI_SIZE", "8"},
                         {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}, {"HYDI_CONTROL_FD", "7"}};
const Variables open_mpi = {
    {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_RANK", "5"}, {"PMIX_NAMESPACE", "419233793"}, {"PMIX_RANK", "5"}};
const Variables prrte = {{"PRTE_LAUNCHED", "1"}, {"PMIX_NAMESPACE", "prterun-n1-512@1"}, {"PMIX_RANK", "0"}};
const Variables torchrun = {{"TORCHELASTIC_RUN_ID", "none"},
                            {"RANK", "2"},
                            {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "0"},
                            {"LOCAL_WORLD_SIZE", "2"}};
const Variables ours = {{"HOROVOD_RANK", "1"}, {"HOROVOD_SIZE", "2"}, {"HOROVOD_LOCAL_STORE", "@1"}};

const Row rows[] = {
    {"a login shell", {{"PATH", "/bin"}}, false, std::nullopt},
    {"a login node of a Slurm site", {{"SLURM_CONF", "/etc/slurm.conf"}}, false, std::nullopt},
    {"salloc's shell", allocation + Variables{{"SLURM_NTASKS", "4"}}, false, std::nullopt},
    {"a batch script",
     allocation + Variables{{"SLURM_NTASKS", "4"},
                            {"SLURM_PROCID", "0"},
                            {"SLURM_LOCALID", "0"},
                            {"SLURM_NODEID", "0"},
                            {"SLURM_GTIDS", "0"}},
     false, std::nullopt},
    {"a batch script of an array", allocation + Variables{{"SLURM_ARRAY_TASK_ID", "3"}, {"SLURM_PROCID", "0"}}, false,
     std::nullopt},
    {"salloc's interactive step",
     allocation + Variables{{"SLURM_STEP_ID", "4294967290"},
                            {"SLURM_PROCID", "0"},
                            {"SLURM_STEP_NUM_TASKS", "1"},
                            {"SLURM_NTASKS", "4"}},
     false, std::nullopt},
    {"the batch step by its number",
     allocation + Variables{{"SLURM_STEP_ID", "4294967291"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}, false,
     std::nullopt},
    {"srun --pty bash in an allocation of four",
     allocation +
         Variables{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "4"}},
     false, Launcher::slurm, 1, 0},
    {"PALS's mpiexec, which tells only how many are on the node",
     {{"PBS_JOBID", "9"},
      {"PALS_RANKID", "3"},
      {"PALS_LOCAL_RANKID", "1"},
      {"PALS_LOCAL_SIZE", "2"},
      {"PALS_NODEID", "1"}},
     false,
     Launcher::pals,
     2,
     3,
     "mpiexec --pmi=pmix"},
    {"srun --mpi=none", step_of_four, false, Launcher::slurm, 4, 2, "HOROVOD_SHARED_DIR"},
    {"srun --mpi=cray_shasta", step_of_four + Variables{{"SLURM_MPI_TYPE", "cray_shasta"}}, false, Launcher::slurm, 4,
     2, "--mpi=cray_shasta"},
    {"srun --mpi=pmix", step_of_four + pmix_of_slurm, false, Launcher::slurm, 4, 2, "srun --mpi=pmi2"},
    {"srun --mpi=pmi2",
     step_of_four + Variables{{"SLURM_MPI_TYPE", "pmi2"}, {"PMI_FD", "11"}, {"PMI_RANK", "2"}, {"PMI_SIZE", "4"}}, true,
     Launcher::slurm, 4, 2, "srun --mpi=pmix"},
    {"srun --mpi=pmi2 through a wrapper that closes descriptors",
     step_of_four + Variables{{"SLURM_MPI_TYPE", "pmi2"}, {"PMI_FD", "11"}, {"PMI_RANK", "2"}, {"PMI_SIZE", "4"}},
     false, Launcher::slurm, 4, 2, "srun --mpi=pmix"},
    {"a heterogeneous step", within_components + step_of_four, false, Launcher::slurm, 6, 2, "srun --mpi=pmix"},
    {"a step of a job that a heterogeneous job has submitted",
     Variables{{"SLURM_JOB_ID_HET_GROUP_0", "4"}, {"SLURM_JOB_ID_HET_GROUP_1", "5"}} + within_components + step_of_four,
     false, Launcher::slurm, 4, 2, "srun --mpi=pmix"},
    {"a step of an old Slurm without STEP_NUM_TASKS",
     allocation + Variables{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}}, false,
     Launcher::slurm, 4, 3, "srun --mpi=pmix"},
    {"mpiexec of MPICH's", hydra, true, Launcher::hydra, 8, 3, "horovodrun -np 8"},
    {"mpiexec of MPICH's -n 1",
     {{"PMI_FD", "6"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"MPI_LOCALNRANKS", "1"}},
     true,
     Launcher::hydra,
     1,
     0},
    {"mpiexec of MPICH's -pmi-port",
     {{"PMI_PORT", "n1:36279"}, {"PMI_ID", "1"}, {"MPI_LOCALNRANKS", "2"}},
     false,
     Launcher::hydra,
     2,
     1,
     "PMI_FD"},
    {"mpiexec of MPICH's over a Slurm allocation", step_of_daemons + hydra, true, Launcher::hydra, 8, 3, "horovodrun"},
    {"mpiexec of MPICH's in a rank of srun --mpi=pmix", step_of_four + pmix_of_slurm + hydra, true, Launcher::hydra, 8,
     3, "horovodrun"},
    {"mpiexec -n 1 in a step of four",
     step_of_four + Variables{{"PMI_FD", "6"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"MPI_LOCALNRANKS", "1"}}, true,
     Launcher::hydra, 1, 0},
    {"torchrun", torchrun, false, Launcher::torchrun, 4, 2, "horovodrun -np 4"},
    {"torchrun in a rank of srun --mpi=pmix", step_of_four + pmix_of_slurm + torchrun, false, Launcher::torchrun, 4, 2,
     "torchrun serves torch.distributed alone"},
    {"a program that sets the variables of torch.distributed itself",
     {{"RANK", "2"}, {"WORLD_SIZE", "4"}},
     false,
     std::nullopt},
    {"mpirun of Open MPI's", open_mpi, false, Launcher::open_mpi, 8, 5, "PMIx plugin"},
    {"mpirun of Open MPI's over a Slurm allocation", step_of_daemons + open_mpi, false, Launcher::open_mpi, 8, 5,
     "PMIx plugin"},
    {"prterun", prrte, false, Launcher::prrte, 0, 0},
    {"prterun over a Slurm allocation", step_of_daemons + prrte, false, Launcher::prrte, 0, 0},
    {"prterun, the third rank",
     {{"PMIX_NAMESPACE", "prterun-n1-512@1"}, {"PMIX_RANK", "2"}},
     false,
     Launcher::prrte,
     3,
     2,
     "PMIX_RANK=2"},
    {"jsrun",
     {{"JSM_NAMESPACE_SIZE", "12"},
      {"JSM_NAMESPACE_RANK", "0"},
      {"PMIX_NAMESPACE", "1"},
      {"PMIX_RANK", "0"},
      {"OMPI_COMM_WORLD_SIZE", "12"},
      {"OMPI_COMM_WORLD_RANK", "0"}},
     false,
     Launcher::jsm,
     12,
     0,
     "jsrun"},
    {"a launch node of LSF", {{"LSB_JOBID", "9"}, {"LSB_DJOB_NUMPROC", "81"}}, false, std::nullopt},
    {"flux run",
     {{"FLUX_JOB_SIZE", "4"}, {"FLUX_TASK_RANK", "1"}, {"PMI_FD", "8"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}},
     true,
     Launcher::flux,
     4,
     1,
     "flux run"},
    {"flux inside a Slurm step", step_of_daemons + Variables{{"FLUX_JOB_SIZE", "16"}, {"FLUX_TASK_RANK", "9"}}, false,
     Launcher::flux, 16, 9, "flux run"},
    {"PALS's mpiexec",
     {{"PALS_RANKID", "2"}, {"PMI_RANK", "2"}, {"PMI_SIZE", "8"}},
     false,
     Launcher::pals,
     8,
     2,
     "--pmi=pmix"},
    {"MVAPICH's mpirun_rsh",
     {{"MV2_COMM_WORLD_SIZE", "4"}, {"MV2_COMM_WORLD_RANK", "1"}},
     false,
     Launcher::mvapich,
     4,
     1,
     "horovodrun -np 4"},
    {"some launcher that speaks PMI",
     {{"PMI_FD", "5"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}},
     true,
     Launcher::pmi,
     2,
     1,
     "PMI_FD"},
    {"PMI whose server is gone",
     {{"PMI_FD", "5"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}},
     false,
     Launcher::pmi,
     2,
     1,
     "PMI_FD"},
    {"horovodrun", ours, false, Launcher::horovodrun, 2, 1, "HOROVOD_BOOTSTRAP"},
    {"horovodrun in a rank of srun", step_of_four + ours, false, Launcher::horovodrun, 2, 1, "HOROVOD_BOOTSTRAP"},
    {"horovodrun -np 1 in a step of four", step_of_four + Variables{{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "1"}},
     false, Launcher::horovodrun, 1, 0},
    {"numbers that are none",
     {{"PMI_FD", "x"}, {"PMI_RANK", "-1"}, {"PMI_SIZE", "4x"}, {"OMPI_COMM_WORLD_SIZE", ""}},
     true,
     std::nullopt},
};

TEST(Launch, is_told_by_the_innermost_launcher) {
  static_assert(std::size(rows) >= 25);
  for (const Row& row : rows) {
    auto found = innermost_launch(
        Environment(row.variables), row.pmi_fd_is_open ? [](int) { return true; } : [](int) { return false; });
    ASSERT_EQ(found.has_value(), row.launcher.has_value()) << row.what;
    if (!found) continue;
    EXPECT_EQ(found->launcher, *row.launcher) << row.what;
    EXPECT_EQ(found->size, row.size) << row.what;
    EXPECT_EQ(found->rank, row.rank) << row.what;
  }
}

TEST(Launch, of_components_may_span_nodes_though_each_knows_one) {
  Environment environment(Variables{{"SLURM_STEP_NUM_NODES", "1"}} + within_components + step_of_four);
  auto found = innermost_launch(environment);
  ASSERT_TRUE(found);
  EXPECT_TRUE(may_span_nodes(*found, environment));
  environment.set("SLURM_JOB_ID_HET_GROUP_0", "4");
  EXPECT_FALSE(may_span_nodes(*found, environment)) << "inherited by sbatch";
}

TEST(Launchers, are_recognised_by_what_their_rows_say) {
  for (const LauncherRow& row : launchers()) {
    if (row.recognised != Recognised::by_variables) continue;
    Environment environment({{*row.sizes.begin(), "6"}, {*row.ranks.begin(), "5"}});
    for (const char* mark : row.marks)
      if (!environment.has(mark)) environment.set(mark, "1");
    auto found = innermost_launch(environment);
    ASSERT_TRUE(found) << row.name;
    EXPECT_EQ(found->launcher, row.launcher) << row.name;
    EXPECT_EQ(found->size, 6) << row.name;
    EXPECT_EQ(found->rank, 5) << row.name;
    if (row.nodes == nullptr && row.local_size == nullptr) continue;
    environment.set(row.nodes != nullptr ? row.nodes : row.local_size, row.nodes != nullptr ? "1" : "6");
    EXPECT_FALSE(may_span_nodes(*found, environment)) << row.name;
  }
}

TEST(Launchers, have_one_row_each_with_a_name_and_a_remedy) {
  std::set<Launcher> seen;
  for (const LauncherRow& row : launchers()) {
    EXPECT_TRUE(seen.insert(row.launcher).second) << row.name;
    EXPECT_EQ(&row_of(row.launcher), &row);
    EXPECT_FALSE(std::string_view(row.name).empty());
    std::string text = remedy({row.launcher, row.name, 4, 0, ""}, Environment());
    EXPECT_FALSE(text.empty()) << row.name;
    EXPECT_EQ(text.find('{'), std::string::npos) << text;
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(Launcher::pmi) + 1);
}

TEST(Launchers, leave_traces_that_are_told_from_settings) {
  for (const char* name : {"PMI_RANK", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE", "PALS_RANKID", "HOROVOD_LOCAL_STORE_X",
                           "HOROVOD_ELASTIC", "HOROVOD_ELASTIC_PROCESS", "HOROVOD_ELASTIC_SLOT"})
    EXPECT_TRUE(is_trace_of_launcher(name)) << name;
  for (const char* name : {"PMIX_MCA_gds", "OMPI_MCA_btl", "PATH", "HOROVOD_MPI", "HOROVOD_ELASTIC_TIMEOUT"})
    EXPECT_FALSE(is_trace_of_launcher(name)) << name;
}

std::vector<posix::Ancestor> nobody_above() {
  return {};
}
int three_tasks(const posix::Ancestor&) {
  return 3;
}

TEST(Guard, refuses_a_world_of_one_where_more_were_launched) {
  for (const Row& row : rows) {
    Environment environment(row.variables);
    IsSocket is_socket = row.pmi_fd_is_open ? [](int) { return true; } : [](int) { return false; };
    Status status = check_singleton(1, environment, Config(), is_socket, &nobody_above, &three_tasks);
    EXPECT_EQ(static_cast<bool>(status), row.advice == nullptr) << row.what;
    EXPECT_TRUE(check_singleton(2, environment, Config(), is_socket, &nobody_above, &three_tasks)) << row.what;
    Config allowed;
    allowed.allow_singleton = true;
    EXPECT_TRUE(check_singleton(1, environment, allowed, is_socket, &nobody_above, &three_tasks)) << row.what;
    if (status || row.advice == nullptr) continue;
    for (const char* part : {row.advice, "HOROVOD_ALLOW_SINGLETON=1", "would train alone"})
      EXPECT_NE(status.error().message.find(part), std::string::npos) << row.what << ": " << status.error().message;
    std::string count = " one of " + std::to_string(row.size) + " ";
    EXPECT_NE(status.error().message.find(count), std::string::npos) << row.what << ": " << status.error().message;
    EXPECT_EQ(status.error().message.find('\n'), std::string::npos) << row.what;
  }
}

// Ancestors of a process whose own environment tells nothing, the parent first. `size`: how many processes were
// launched together with it, as far as the ancestors show.
struct Above {
  const char* what;
  std::vector<posix::Ancestor> ancestors;
  std::optional<int> size;
};

posix::Ancestor shell(Variables variables = {}) {
  return {20, "sh", "sh", Environment(std::move(variables))};
}
posix::Ancestor slurmstepd(const char* title) {
  return {10, "slurmstepd", title, {}};
}

const Above families[] = {
    {"a login shell", {shell({{"PATH", "/bin"}}), {1, "systemd", "/sbin/init", {}}}, std::nullopt},
    {"nobody to be seen", {}, std::nullopt},
    {"a task of a step of three", {slurmstepd("slurmstepd: [7.0]")}, 3},
    {"one further down", {shell(), shell(), slurmstepd("slurmstepd: [1234567.12]")}, 3},
    {"a task where the title has no room for the step", {slurmstepd("slurmstepd: [1234567")}, 3},
    {"the batch script", {shell(), slurmstepd("slurmstepd: [7.batch]")}, std::nullopt},
    {"the batch script where the title has no room", {slurmstepd("slurmstepd: [7.bat")}, std::nullopt},
    {"salloc's interactive step", {shell(), slurmstepd("slurmstepd: [7.interactive]")}, std::nullopt},
    {"a login by ssh that Slurm took in", {shell(), slurmstepd("slurmstepd: [7.extern]")}, std::nullopt},
    {"the shell that was started as a task, on a host of its own",
     {shell(step_of_four), slurmstepd("slurmstepd: [7.0]")},
     4},
    {"below mpiexec in a step of daemons",
     {shell(), {20, "hydra_pmi_proxy", "x", {}}, slurmstepd("slurmstepd: [7.0]")},
     std::nullopt},
    {"a batch script of Flux's below srun",
     {shell(), {20, "flux-broker", "x", Environment(step_of_four)}, slurmstepd("slurmstepd: [7.0]")},
     std::nullopt},
    {"a rank of horovodrun's", {{20, "horovod-agent", "x", {}}, slurmstepd("slurmstepd: [7.0]")}, std::nullopt},
    {"a shell that unset what mpiexec told it", {shell(), shell(hydra)}, 8},
    {"orterun's", {shell(open_mpi)}, 8},
    {"horovodrun -np 1 in a step",
     {shell({{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "1"}}), slurmstepd("slurmstepd: [7.0]")},
     1},
    {"a batch script's own variables",
     {shell(allocation + Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}})},
     std::nullopt},
};

TEST(Launch, is_told_by_the_nearest_process_above) {
  for (const Above& family : families) {
    auto found = launch_above(family.ancestors, &three_tasks);
    ASSERT_EQ(found.has_value(), family.size.has_value()) << family.what;
    if (!found) continue;
    EXPECT_EQ(found->size, *family.size) << family.what;
  }
}

TEST(Guard, refuses_a_world_of_one_below_a_launch_of_several) {
  auto above = [] { return std::vector{shell(), slurmstepd("slurmstepd: [7.0]")}; };
  Status refused = check_singleton(1, Environment(), Config(), &is_socket_of_this_process, above, &three_tasks);
  ASSERT_FALSE(refused);
  for (const char* part : {"one of 3 that srun started together", "process 10 above it, slurmstepd", "--cleanenv",
                           "HOROVOD_ALLOW_SINGLETON=1"})
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  auto one_task = [](const posix::Ancestor&) { return 1; };
  EXPECT_TRUE(check_singleton(1, Environment(), Config(), &is_socket_of_this_process, above, one_task));
  EXPECT_TRUE(check_singleton(2, Environment(), Config(), &is_socket_of_this_process, above, &three_tasks));
  Config allowed;
  allowed.allow_singleton = true;
  EXPECT_TRUE(check_singleton(1, Environment(), allowed, &is_socket_of_this_process, above, &three_tasks));
  // The process's own environment is more important than its ancestors: for example horovodrun -np 1 in a step of
  // three.
  Environment alone({{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "1"}});
  EXPECT_TRUE(check_singleton(1, alone, Config(), &is_socket_of_this_process, above, &three_tasks));
}

TEST(Ancestors, are_read_from_the_parent_upwards) {
  auto found = posix::ancestors_of_this_process();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].process, ::getppid());
  EXPECT_FALSE(found[0].name.empty());
  EXPECT_GE(posix::count_children(::getppid()), 1u);
}

TEST(Launchers, have_the_variables_of_their_ranks_in_the_docs) {
  std::ifstream page(HVD_SOURCE_DIR "/docs/launching.md");
  const std::string text{std::istreambuf_iterator<char>(page), {}};
  for (const LauncherRow& row : launchers())
    for (const Names& names : {row.ranks, row.sizes, row.local_ranks})
      for (const std::string name : names)
        EXPECT_NE(text.find("`" + name + "`"), std::string::npos) << row.name << ": " << name;
}

}  // namespace
}  // namespace hvd::bootstrap
