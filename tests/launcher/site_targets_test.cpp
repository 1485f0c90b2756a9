// The commands that horovodrun composes inside jobs of LSF, PBS and Flux. The launchers in PATH are empty files, and
// the composed commands are not run.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "launcher/agent/called_agent.hpp"
#include "launcher/targets/jsrun_layout.hpp"
#include "launcher/targets/target.hpp"
#include "missing_from.hpp"

namespace hvd::launcher {
namespace {

using testing::missing_from;

using JobVariables = std::map<std::string, std::string, std::less<>>;

// A folder with programs that do nothing or print a fixed answer.
class Programs {
 public:
  Programs() {
    std::string pattern = std::filesystem::temp_directory_path() / "hvd-programs-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  Programs(const Programs&) = delete;
  Programs& operator=(const Programs&) = delete;
  ~Programs() { std::filesystem::remove_all(folder_); }
  void add(const std::string& name, const std::string& script = "") {
    std::filesystem::path path = folder_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    ::chmod(path.c_str(), 0700);
  }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

struct Composed {
  std::string target{}, command{}, host_file{};  // the command up to the keeper, without its first word
  std::vector<HostPlan> hosts{};
  std::vector<HostSlots> slots{};  // of an elastic job
  int spares = 0;
  HostPlan found_n3{}, found_other{};  // the ways to hosts that are found later
  std::vector<std::string> unset{};
};

Composed compose(const Programs& programs, JobVariables variables, int ranks, std::vector<const char*> arguments = {},
                 std::vector<HostSlots> hosts = {}) {
  arguments.push_back("train");
  auto flags = parse_flags(arguments);
  variables["PATH"] = programs.folder() + ":/usr/bin:/bin";
  variables["HOROVOD_REMOTE_PROGRAM"] = "/hvd";
  Environment environment(std::move(variables));
  JobRequest request{*flags, environment, ranks, {"train"}, std::move(hosts)};
  auto chosen = choose_target(request);
  if (!chosen) return {.target = chosen.error().message};
  Composed composed{.target = chosen->target->name};
  auto plan = chosen->target->plan(request);
  if (!plan) {
    composed.command = plan.error().message;
    return composed;
  }
  composed.hosts = plan->hosts;
  if (plan->elastic) {
    composed.slots = plan->elastic->hosts;
    composed.spares = plan->elastic->membership.spares;
    if (auto& plan_of_host = plan->elastic->plan_of_host; plan_of_host) {
      composed.found_n3 = plan_of_host("n3");
      composed.found_other = plan_of_host("other");
    }
  }
  if (!plan->site) return composed;
  composed.host_file = plan->site->host_file;
  composed.unset = plan->site->unset;
  for (std::size_t at = 1; at < plan->site->command.size() && plan->site->command[at] != "/hvd"; ++at)
    composed.command += (at == 1 ? "" : " ") + plan->site->command[at];
  EXPECT_EQ(plan->site->command.back(), "train");
  return composed;
}

const JobVariables summit = {{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", "batch5 1 h1 42 h2 42"}};

TEST(JsrunTarget, gives_each_host_one_resource_set_in_which_all_gpus_are_seen) {
  Programs programs;
  programs.add("jsrun");
  Composed composed = compose(programs, summit, 12);
  EXPECT_EQ(composed.target, "jsrun");
  EXPECT_EQ(
      composed.command,
      "-n 2 -r 1 -a 6 -c 42 -g ALL_GPUS -b packed:7 -d packed --stdio_mode prepended --exit_on_error 1 --smpiargs "
      "-disable_gpu_hooks");
  EXPECT_EQ(composed.unset, std::vector<std::string>{"TMPDIR"});
  EXPECT_TRUE(compose(programs, summit, 84).command.starts_with("-n 2 -r 1 -a 42 -c 42 -g ALL_GPUS -b packed:1 "));
  EXPECT_TRUE(compose(programs, summit, 1).command.starts_with("-n 1 -r 1 -a 1 -c 42 -g ALL_GPUS -b packed:42 "));
  EXPECT_TRUE(compose(programs, summit, 168, {"--oversubscribe"})
                  .command.starts_with("-n 2 -r 1 -a 84 -c 42 -g ALL_GPUS -b none "));
}

TEST(JsrunTarget, hands_on_what_the_user_says_of_binding_mpi_and_tcp) {
  Programs programs;
  programs.add("jsrun");
  EXPECT_EQ(compose(programs, summit, 12, {"--binding-args", "-n 2 -a 6 -c ALL_CPUS", "--mpi-args", "-async", "--tcp"})
                .command,
            "-n 2 -a 6 -c ALL_CPUS --stdio_mode prepended --exit_on_error 1 --smpiargs -disable_gpu_hooks -tcp -async");
  EXPECT_TRUE(compose(programs, summit, 12, {"--mpi-args", "-gpu"}).command.ends_with("--smpiargs -gpu"));
}

TEST(JsrunTarget, shares_uneven_ranks_out_in_sets_of_one_or_by_a_file_that_the_user_asks_for) {
  schedulers::Allocation job{"7", {{"h1", 6, 42, 6}, {"h2", 6, 42, 6}}, "LSB_MCPU_HOSTS", "batch5"};
  auto sets = resource_sets({{"h1", 4}, {"h2", 3}}, job);
  ASSERT_TRUE(sets);
  std::string text;
  for (const std::string& word : *sets) text += word + " ";
  EXPECT_EQ(text, "-n 7 -r 4 -a 1 -c 10 -g 1 -b packed:10 -d packed ");

  Programs programs;
  programs.add("jsrun");
  EXPECT_EQ(missing_from(compose(programs, summit, 7).command,
                         {"7 ranks", "2 hosts", "42 cores", "multiple of 2", "--jsrun-erf"}),
            "");
  EXPECT_EQ(explicit_resources({{"h1", 2}, {"h2", 1}}, job, 4),
            "overlapping_rs: allow\ncpu_index_using: logical\nskip_missing_cpu: warn\nskip_missing_gpu: allow\n"
            "oversubscribe_gpu: allow\noversubscribe_mem: allow\n\n"
            "rank: 0: { hostname: h1; cpu: {0-83} ; gpu: * ; mem: * }\n"
            "rank: 1: { hostname: h1; cpu: {84-167} ; gpu: * ; mem: * }\n\n"
            "rank: 2: { hostname: h2; cpu: {0-167} ; gpu: * ; mem: * }\n");
  Composed composed = compose(programs, summit, 7, {"--jsrun-erf"});
  EXPECT_TRUE(composed.command.starts_with("--erf_input {host file} --stdio_mode")) << composed.command;
  EXPECT_NE(composed.host_file.find("rank: 6: { hostname: h2; cpu: {"), std::string::npos);
  EXPECT_TRUE(compose(programs, summit, 2, {}, {{"h2", 2}}).command.find("add --jsrun-erf") != std::string::npos);
  EXPECT_NE(compose(programs, summit, 2, {"--jsrun-erf"}, {{"h2", 2}}).host_file.find("rank: 1: { hostname: h2;"),
            std::string::npos);
  EXPECT_EQ(missing_from(compose(programs, summit, 2, {"--jsrun-erf"}, {{"h9", 2}}).command,
                         {"h9", "job 7", "LSF", "h1:42, h2:42"}),
            "");
}

TEST(JsrunTarget, leaves_no_rank_on_the_launch_node) {
  Programs programs;
  programs.add("jsrun");
  for (auto flags : {std::vector<const char*>{"--gloo"}, {}}) {
    std::vector<HostSlots> hosts;
    if (flags.empty()) hosts = {{"localhost", 2}};
    Composed composed = compose(programs, summit, 2, flags, hosts);
    EXPECT_EQ(composed.target, "agents");
    EXPECT_EQ(missing_from(composed.command, {"launch node batch5", "LSF's job 7", "jsrun", "--gloo", "-H localhost"}),
              "");
  }
  EXPECT_EQ(missing_from(compose(programs, summit, 85).command, {"job 7", "LSF", "84", "h1:42, h2:42"}), "");
}

TEST(AgentsTarget, reaches_hosts_of_lsf_by_blaunch_where_there_is_no_jsm) {
  Programs programs;
  programs.add("blaunch");
  JobVariables variables = {{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", "n1 1 n2 2"}};
  Composed composed = compose(programs, variables, 3);
  EXPECT_EQ(composed.target, "agents");
  ASSERT_EQ(composed.hosts.size(), 2u);
  EXPECT_EQ(composed.hosts[1].reach, (std::vector<std::string>{"blaunch", "n2"}));
  EXPECT_TRUE(composed.hosts[1].takes_words);
  EXPECT_EQ(compose(programs, variables, 3, {"--gloo"}).hosts[1].reach[0], "ssh");
  variables["HOROVOD_SSH"] = "my_ssh";
  EXPECT_EQ(compose(programs, variables, 3).hosts[1].reach[0], "my_ssh");
}

TEST(AgentsTarget, reaches_hosts_of_grid_engine_by_qrsh) {
  Programs programs;
  programs.add("qrsh");
  std::ofstream(programs.folder() + "/hosts") << "n1 1 all.q@n1 UNDEFINED\nn2 2 all.q@n2 UNDEFINED\n";
  JobVariables variables = {
      {"JOB_ID", "3"}, {"SGE_TASK_ID", "undefined"}, {"PE_HOSTFILE", programs.folder() + "/hosts"}};
  Composed composed = compose(programs, variables, 3);
  ASSERT_EQ(composed.hosts.size(), 2u) << composed.command;
  EXPECT_EQ(composed.hosts[1].reach, (std::vector<std::string>{"qrsh", "-inherit", "-noshell", "n2"}));
}

TEST(PalsTarget, binds_by_depth_and_names_the_hosts) {
  Programs programs;
  programs.add("pals/bin/mpiexec");
  std::filesystem::create_symlink(programs.folder() + "/pals/bin/mpiexec", programs.folder() + "/mpiexec");
  programs.add("qstat", "echo '    exec_vnode = (x1:ncpus=64:ngpus=4)+(x2:ncpus=32:ngpus=4)'");
  std::string node_file = programs.folder() + "/nodes";
  std::ofstream(node_file) << "x1\nx2\n";
  JobVariables variables = {{"PBS_JOBID", "9.server"}, {"PBS_NODEFILE", node_file}};
  Composed composed = compose(programs, variables, 8);
  EXPECT_EQ(composed.target, "pals");
  // The job has one rank per host. It offers more slots than that, according to the cores of its hosts.
  EXPECT_EQ(composed.command, "--pmi=pmix --line-buffer -n 8 --ppn 5 --hosts x1,x2 --cpu-bind depth --depth 6");
  EXPECT_EQ(compose(programs, variables, 2).command,
            "--pmi=pmix --line-buffer -n 2 --ppn 1 --hosts x1,x2 --cpu-bind depth --depth 32");
  std::ofstream(programs.folder() + "/qstat") << "#!/bin/sh\n";
  EXPECT_EQ(compose(programs, variables, 2).command,
            "--pmi=pmix --line-buffer -n 2 --ppn 1 --hosts x1,x2 --cpu-bind none");
}

TEST(AgentsTarget, lets_pbsdsh_start_agents_where_there_is_no_pals) {
  Programs programs;
  programs.add("pbsdsh");
  std::string node_file = programs.folder() + "/nodes";
  std::ofstream(node_file) << "x1.site\nx1.site\nx2.site\n";
  JobVariables variables = {{"PBS_JOBID", "9.server"}, {"PBS_NODEFILE", node_file}};
  Composed composed = compose(programs, variables, 3, {"--network-interfaces", "ib0"});
  EXPECT_EQ(composed.target, "agents");
  ASSERT_EQ(composed.hosts.size(), 2u);
  EXPECT_EQ(composed.hosts[1].reach,
            (std::vector<std::string>{"/proc/self/exe", pbsdsh_line_flag, "ib0", "-", "-", "x2.site"}));
  EXPECT_TRUE(composed.hosts[1].takes_words);
  EXPECT_EQ(compose(programs, variables, 3, {"--gloo"}).hosts[1].reach.front(), "ssh");
  EXPECT_EQ(task_number_of("x2", "x1.site\nx1.site\nx2.site\n"), 2);
  EXPECT_EQ(task_number_of("x3", "x1\nx1\nx2\n"), -1);
}

const JobVariables three_nodes_of_slurm = {{"SLURM_JOB_ID", "7"},
                                           {"SLURM_JOB_NODELIST", "n[1-3]"},
                                           {"SLURM_JOB_NUM_NODES", "3"},
                                           {"SLURM_TASKS_PER_NODE", "2(x3)"},
                                           {"SLURM_JOB_CPUS_PER_NODE", "8(x3)"}};

TEST(AgentsTarget, starts_an_elastic_job_on_all_nodes_of_slurm_by_srun) {
  Programs programs;
  programs.add("srun");
  const std::vector<const char*> elastic = {"--min-np", "2", "--network-interfaces", "ib0", "--max-requeues", "5"};
  Composed composed = compose(programs, three_nodes_of_slurm, 4, elastic);
  EXPECT_EQ(composed.target, "agents");
  ASSERT_EQ(composed.hosts.size(), 3u) << composed.command;
  EXPECT_EQ(composed.hosts[2].reach,
            (std::vector<std::string>{"/proc/self/exe", srun_line_flag, "ib0", "-", "5", "n3"}));
  EXPECT_TRUE(composed.hosts[2].takes_words);
  EXPECT_EQ(composed.slots, (std::vector<HostSlots>{{"n1", 2}, {"n2", 2}, {"n3", 2}})) << "also those for spares";
  EXPECT_EQ(compose(programs, three_nodes_of_slurm, 4, {"--min-np", "2", "--gloo"}).hosts[2].reach[0], "ssh");
  EXPECT_EQ(compose(programs, three_nodes_of_slurm, 4).target, "slurm") << "a job whose ranks stay";
  EXPECT_EQ(missing_from(compose(programs, three_nodes_of_slurm, 25, elastic).command, {"-np 25", "slots (24"}), "");
}

TEST(AgentsTarget, refuses_an_elastic_job_of_several_components_of_slurm) {
  Programs programs;
  programs.add("srun");
  JobVariables variables = {{"SLURM_JOB_ID", "7"},
                            {"SLURM_HET_SIZE", "2"},
                            {"SLURM_JOB_NODELIST_HET_GROUP_0", "n1"},
                            {"SLURM_JOB_NODELIST_HET_GROUP_1", "n2"},
                            {"SLURM_TASKS_PER_NODE_HET_GROUP_0", "2"},
                            {"SLURM_TASKS_PER_NODE_HET_GROUP_1", "2"}};
  EXPECT_EQ(missing_from(compose(programs, variables, 4, {"--min-np", "2"}).command,
                         {"--min-np inside a heterogeneous job of Slurm", "--gloo"}),
            "");
  EXPECT_EQ(missing_from(compose(programs, variables, 2, {"--min-np", "2"}, {{"n2", 2}}).command,
                         {"--min-np inside a heterogeneous job of Slurm", "--gloo"}),
            "");
}

TEST(AgentsTarget, keeps_the_slots_of_an_allocation_of_one_node_in_an_elastic_job) {
  Programs programs;
  programs.add("srun");
  const JobVariables one_node = {{"SLURM_JOB_ID", "7"},
                                 {"SLURM_JOB_NODELIST", "n1"},
                                 {"SLURM_JOB_NUM_NODES", "1"},
                                 {"SLURM_TASKS_PER_NODE", "8"},
                                 {"SLURM_JOB_CPUS_PER_NODE", "8"}};
  Composed composed = compose(programs, one_node, 4, {"--min-np", "2", "--max-np", "4", "--spares", "auto"});
  EXPECT_EQ(composed.slots, (std::vector<HostSlots>{{"n1", 8}})) << composed.command;
  EXPECT_EQ(composed.spares, Membership::spares_on_all_slots) << "4 of the 8";
  composed = compose(programs, {}, 2, {"--min-np", "1", "--spares", "1"});
  EXPECT_EQ(composed.slots, (std::vector<HostSlots>{{"localhost", 3}})) << composed.command;
}

TEST(AgentsTarget, names_hosts_to_srun_as_slurm_does_and_reaches_those_of_no_job_by_ssh) {
  Programs programs;
  programs.add("srun");
  Composed composed = compose(programs, three_nodes_of_slurm, 4, {"--min-np", "2"}, {{"n2.site.org", 4}});
  ASSERT_EQ(composed.hosts.size(), 1u) << composed.command;
  EXPECT_EQ(composed.hosts[0].reach.back(), "n2");
  composed = compose(programs, three_nodes_of_slurm, 2, {"--min-np", "2", "--host-discovery-script", "hosts"});
  ASSERT_FALSE(composed.found_n3.reach.empty()) << composed.command;
  EXPECT_EQ(composed.found_n3.reach[1], srun_line_flag);
  EXPECT_EQ(composed.found_other.reach[0], "ssh");
  EXPECT_FALSE(composed.found_other.takes_words);
}

TEST(SlurmTarget, names_hosts_to_srun_as_slurm_does) {
  Programs programs;
  programs.add("srun");
  Composed composed = compose(programs, three_nodes_of_slurm, 4, {}, {{"n3.site.org", 2}, {"n2", 2}});
  EXPECT_EQ(missing_from(composed.command, {"-w n3,n3,n2,n2"}), "");
  EXPECT_EQ(missing_from(compose(programs, three_nodes_of_slurm, 2, {}, {{"n9", 2}}).command,
                         {"the host n9 is not in the job 7"}),
            "");
}

TEST(AgentsTarget, leaves_a_job_of_this_machine_alone_on_a_login_node_of_slurm) {
  Programs programs;
  programs.add("srun");
  Composed composed = compose(programs, three_nodes_of_slurm, 2, {"--min-np", "1"}, {{"localhost", 2}});
  EXPECT_EQ(composed.slots, (std::vector<HostSlots>{{"localhost", 2}})) << composed.command;
  EXPECT_EQ(missing_from(compose(programs, three_nodes_of_slurm, 2, {"--min-np", "1"}, {{"n9", 2}}).command,
                         {"the host n9 is not in the job 7"}),
            "");
}

// Each of these launchers ends all ranks with the first one that fails.
TEST(ElasticJobs, are_refused_by_name_where_a_launcher_of_the_site_starts_the_ranks) {
  Programs programs, pals;
  programs.add("jsrun");
  programs.add("flux");
  pals.add("pals/bin/mpiexec");
  std::filesystem::create_symlink(pals.folder() + "/pals/bin/mpiexec", pals.folder() + "/mpiexec");
  const std::string node_file = pals.folder() + "/nodes";
  std::ofstream(node_file) << "x1\nx2\n";
  auto expect_refused = [](const char* target, const Programs& of_site, const JobVariables& variables) {
    const std::string refused = compose(of_site, variables, 2, {"--min-np", "2"}).target;
    EXPECT_EQ(missing_from(refused,
                           {"--min-np", target, "ends all ranks with the first that fails", "--gloo", "checkpoints"}),
              "");
  };
  expect_refused("jsrun", programs, summit);
  expect_refused("flux", programs, {{"FLUX_URI", "local:///run/flux"}});
  expect_refused("pals", pals, {{"PBS_JOBID", "9.server"}, {"PBS_NODEFILE", node_file}});
  EXPECT_EQ(missing_from(compose(programs, {}, 2, {"--min-np", "2", "--mpi"}).target,
                         {"--min-np", "mpi is used (--mpi", "ends all ranks with the first that fails"}),
            "");
}

TEST(ElasticJobs, are_refused_by_name_with_an_mpi_or_another_way_to_meet) {
  Programs programs;
  const std::vector<const char*> elastic = {"--min-np", "2"};
  EXPECT_EQ(missing_from(compose(programs, {{"HOROVOD_MPI", "mpich"}}, 2, elastic).command,
                         {"HOROVOD_MPI=mpich in an elastic job", "Unset HOROVOD_MPI", "checkpoints"}),
            "");
  EXPECT_EQ(missing_from(compose(programs, {{"HOROVOD_BOOTSTRAP", "pmix"}}, 2, elastic).command,
                         {"HOROVOD_BOOTSTRAP=pmix", "elastic job", "unset it"}),
            "");
}

TEST(FluxTarget, takes_whole_nodes) {
  Programs programs;
  programs.add(
      "flux",
      R"(echo '{"execution": {"R_lite": [{"rank": "0-1", "children": {"core": "0-7"}}], "nodelist": ["n[1-2]"]}}')");
  JobVariables variables = {{"FLUX_URI", "local:///run/flux"}};
  Composed composed = compose(programs, variables, 3);
  EXPECT_EQ(composed.target, "flux");
  EXPECT_EQ(composed.command,
            "run -N 2 -n 3 --exclusive -o pmi=simple -o cpu-affinity=per-task -o exit-on-error --label-io");
  EXPECT_EQ(compose(programs, variables, 2, {}, {{"n2", 2}}).command,
            "run -N 1 -n 2 --exclusive -o pmi=simple -o cpu-affinity=per-task -o exit-on-error --label-io "
            "--requires=hosts:n2");
  variables["FLUX_TASK_RANK"] = "0";
  EXPECT_EQ(compose(programs, variables, 1).target, "agents");
}

}  // namespace
}  // namespace hvd::launcher
