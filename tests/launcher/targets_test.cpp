#include <gtest/gtest.h>

#include <array>
#include <set>
#include <utility>

#include "launcher/targets/elastic_request.hpp"
#include "launcher/targets/mpi_command.hpp"
#include "launcher/targets/slurm_share.hpp"
#include "launcher/targets/target.hpp"
#include "missing_from.hpp"

namespace hvd::launcher {
namespace {

using bootstrap::Launcher;
using testing::missing_from;

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : "_") + word;
  return text;
}

TEST(MpiLaunchers, are_told_apart_by_what_they_say) {
  EXPECT_EQ(launcher_that_says("HYDRA build details:\n    Version: 4.0.2\n"), Launcher::hydra);
  EXPECT_EQ(launcher_that_says("Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 2023\n"), Launcher::intel_mpi);
  EXPECT_EQ(launcher_that_says("mpirun (Open MPI) 4.1.4\n\nReport bugs to\n"), Launcher::open_mpi);
  EXPECT_EQ(launcher_that_says("orterun (OpenRTE) 4.1.4\n"), Launcher::open_mpi);
  EXPECT_EQ(launcher_that_says("mpirun (Open MPI) 5.0.11\n"), Launcher::prrte);
  EXPECT_EQ(launcher_that_says("mpirun (Open MPI) 10.1\n"), Launcher::prrte);
  EXPECT_EQ(launcher_that_says("prterun (PRRTE) 3.0.1\n"), Launcher::prrte);
  EXPECT_EQ(launcher_that_says("bash: no\n"), std::nullopt);
}

MpiexecOptions two_hosts() {
  MpiexecOptions options;
  options.ranks = 3;
  options.hosts = {{"n1", 2}, {"n2", 1}};
  options.exported = {"A", "B"};
  options.ssh = "/agent";
  options.more = {"--more"};
  options.command = {"prog", "a b"};
  return options;
}

TEST(MpiLaunchers, get_their_own_options) {
  auto hydra = mpi_command({"mpiexec", Launcher::hydra, "HYDRA"}, two_hosts());
  ASSERT_TRUE(hydra);
  EXPECT_EQ(joined(hydra->command),
            "mpiexec_-n_3_-prepend-rank_-launcher_ssh_-launcher-exec_/agent_-f_{host file}_--more_prog_a b");
  EXPECT_EQ(hydra->host_file, "n1:2\nn2:1\n");
  auto open_mpi = mpi_command({"mpirun", Launcher::open_mpi, "Open MPI"}, two_hosts());
  ASSERT_TRUE(open_mpi);
  EXPECT_EQ(
      joined(open_mpi->command),
      "mpirun_--tag-output_-np_3_-H_n1:2,n2:1_--bind-to_none_--map-by_slot_--mca_plm_rsh_agent_/agent_--mca_plm_rsh"
      "_-x_A_-x_B_--more_prog_a b");
  MpiexecOptions options = two_hosts();
  options.binding = {"--bind-to", "core"};
  options.ssh.clear();
  options.ssh_port = "2222";
  options.is_root = true;
  auto prrte = mpi_command({"prterun", Launcher::prrte, "PRRTE"}, options);
  ASSERT_TRUE(prrte);
  EXPECT_EQ(joined(prrte->command),
            "prterun_--allow-run-as-root_--output_tag_-np_3_-H_n1:2,n2:1_--bind-to_core_--prtemca_plm_ssh_args_-p 2222"
            "_-x_A_-x_B_--more_prog_a b");
  EXPECT_FALSE(mpi_command({"mpiexec", Launcher::hydra, "HYDRA"}, options));  // mpiexec of Hydra takes no port for ssh
}

TEST(ElasticJobs, wait_as_long_as_the_setting_says_however_it_is_written) {
  using std::chrono::milliseconds;
  constexpr std::array arguments = {"--min-np", "1", "--elastic-timeout", "10", "true"};
  const Flags none, ten = parse_flags(arguments).value();
  auto timeout_of = [](const Flags& flags, const std::string& value) {
    const Environment environment({{"HOROVOD_ELASTIC_TIMEOUT", value}});
    return elastic_settings({flags, environment, 1, {}, {}}).value().timeout;
  };
  EXPECT_EQ(timeout_of(none, "900.5"), milliseconds(900'500));
  EXPECT_EQ(timeout_of(none, "+900"), milliseconds(900'000));
  EXPECT_EQ(timeout_of(none, " 900"), milliseconds(900'000));
  EXPECT_EQ(timeout_of(none, ""), milliseconds(600'000));
  EXPECT_EQ(timeout_of(ten, "900.5"), milliseconds(10'000));
  Environment wrong, shouted;
  wrong.set("HOROVOD_ELASTIC_TIMEOUT", "soon");
  shouted.set("HOROVOD_MPI", "NONE");
  EXPECT_NE(elastic_settings({none, wrong, 1, {}, {}}).error().message.find("found 'soon'"), std::string::npos);
  EXPECT_TRUE(elastic_settings({none, shouted, 1, {}, {}})) << "the ranks take it for none";
}

TEST(MpiLaunchers, are_refused_if_the_one_asked_for_is_not_there) {
  Environment environment;
  environment.set("PATH", "/no/such/folder");
  auto none = find_mpiexec(environment);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("load the site's MPI module"), std::string::npos);
  environment.set("HOROVOD_MPIEXEC", "my-mpiexec");
  EXPECT_NE(find_mpiexec(environment).error().message.find("HOROVOD_MPIEXEC=my-mpiexec"), std::string::npos);
}

TEST(Words, are_split_as_a_shell_does) {
  EXPECT_EQ(joined(split_words("  -x \"a b\"  'c\"d' e\\ f ''")), "-x_a b_c\"d_e f_");
  EXPECT_TRUE(split_words(" ").empty());
}

std::string target_of(std::vector<const char*> arguments, std::map<std::string, std::string, std::less<>> variables,
                      std::vector<HostSlots> hosts = {}) {
  auto flags = parse_flags(arguments);
  Environment environment(std::move(variables));
  environment.set("PATH", "/usr/bin:/bin");
  auto chosen = choose_target({*flags, environment, 2, {"true"}, std::move(hosts)});
  return chosen ? chosen->target->name : chosen.error().message;
}

TEST(Target, is_agents_of_ours_unless_something_else_is_there_or_wanted) {
  EXPECT_EQ(target_of({"true"}, {}), "agents");
  EXPECT_EQ(target_of({"--gloo", "true"}, {{"SLURM_JOB_ID", "7"}}), "agents");
  EXPECT_EQ(target_of({"true"}, {{"SLURM_JOB_ID", "7"}}, {{"localhost", 2}}), "agents");
  // Each task of a step starts its own ranks here.
  EXPECT_EQ(
      target_of({"true"},
                {{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "1"}}),
      "agents");
}

TEST(Target, gives_a_host_the_time_to_answer_twice) {
  auto flags = parse_flags(std::vector<const char*>{"--gloo", "true"});
  for (auto [seconds, patience] : {std::pair{"1", 3000}, {"4", 3000}, {"10", 5000}, {"60", 30000}}) {
    Environment environment;
    environment.set("HOROVOD_PEER_TIMEOUT", seconds);
    auto plan = agents_target.plan(JobRequest{*flags, environment, 2, {"true"}, {{"n1.example.org", 2}}});
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->network.lifeline_patience.count(), patience) << seconds;
  }
}

TEST(Target, that_is_wanted_but_not_there_is_refused_in_horovods_words) {
  EXPECT_TRUE(target_of({"--jsrun", "true"}, {}).starts_with("MPI support has not been built.  If this") ||
              target_of({"--jsrun", "true"}, {}).starts_with("Horovod did not detect an LSF job.  The jsrun launcher"));
}

TEST(Target, tells_of_a_flag_that_only_other_targets_use) {
  auto flags = parse_flags(std::array{"--mpi-args", "-gpu", "--binding-args", "-n 4", "--share", "cores=1", "true"});
  ASSERT_TRUE(flags);
  auto unused = [&](const Target& target) { return joined(unused_flags(target, *flags)); };
  for (const Target* target : {&mpi_target, &jsrun_target})
    EXPECT_EQ(unused(*target), "--share is of no use here, only where srun starts the ranks");
  EXPECT_EQ(missing_from(unused(slurm_target), {"--mpi-args is of no use here", "--binding-args"}), "");
  EXPECT_EQ(unused(slurm_target).find("--share"), std::string::npos);
  for (const FlagRow& row : flag_rows())
    if (row.use == Use::some_targets) {
      Flags one;
      one.set(row.name, "1");
      std::set<bool> is_read;
      for (const Target* target :
           {&mpi_target, &slurm_target, &jsrun_target, &pals_target, &flux_target, &agents_target}) {
        const std::string notice = joined(unused_flags(*target, one));
        is_read.insert(notice.empty());
        EXPECT_EQ(notice.empty() ? "" : missing_from(notice, {spelling_of(row) + " is of no use here, only w"}), "");
      }
      EXPECT_EQ(is_read, (std::set{false, true})) << row.name;
      one.set(row.name, "1", {Origin::Layer::site});
      EXPECT_EQ(joined(unused_flags(pals_target, one)), "") << "a site's file is for all jobs";
    }
}

TEST(Share, is_what_each_rank_takes_of_the_job) {
  auto words = [](const char* text) {
    auto share = parse_share(text);
    return share ? joined(words_of(*share)) : share.error().message;
  };
  EXPECT_EQ(words("cores=2"), "--exact_-c_2_--mem=0_--gres=none");
  EXPECT_EQ(words("memory=4G,cores=3,gpus=1"), "--exact_-c_3_--mem-per-cpu=1366M_--gpus-per-task=1_--gpu-bind=none");
  for (const char* text : {"2", "cores", "cores=0", "cores=-1", "cores=2x", "memory=4G", "cores=1,memory=4",
                           "cores=1,a=1", "cores=1,memory=99999999G"})
    EXPECT_EQ(missing_from(words(text), {"--share", "cores=2,memory=4G,gpus=1", text}), "");
}

}  // namespace
}  // namespace hvd::launcher
