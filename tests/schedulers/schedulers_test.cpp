// Tests every scheduler of the registry with captured jobs, and with damaged copies of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "missing_from.hpp"
#include "schedulers/captured_jobs.hpp"
#include "schedulers/grammar/host_lists.hpp"
#include "schedulers/registry.hpp"
#include "schedulers/selection/selection.hpp"

namespace hvd::schedulers {
namespace {

using testing::missing_from;

std::string text_of(const Allocation& allocation) {
  std::string text = allocation.job;
  for (const Host& host : allocation.hosts) {
    text += " " + host.name + ":" + std::to_string(host.slots);
    if (host.cores > 0) text += "/" + std::to_string(host.cores) + "c";
    if (host.gpus >= 0) text += "/" + std::to_string(host.gpus) + "g";
    if (host.part > 0) text += "+" + std::to_string(host.part);
  }
  return text + (allocation.launch_host.empty() ? "" : " (launch node " + allocation.launch_host + ")");
}

TEST(Schedulers, read_hosts_and_time_of_captured_jobs) {
  for (const CapturedJob& job : captured_jobs()) {
    Environment environment(job.variables);
    Around around = scheduler_around(sources_of(job, environment));
    EXPECT_EQ(around.key, job.key) << job.expected;
    auto allocation = around.scheduler->allocation(sources_of(job, environment));
    ASSERT_TRUE(allocation) << job.expected << ": " << allocation.error().message;
    EXPECT_EQ(text_of(*allocation), job.expected);
    EXPECT_EQ(around.scheduler->job(sources_of(job, environment)), allocation->job);
    auto left = around.scheduler->time_left(sources_of(job, environment));
    EXPECT_EQ(left ? left->count() : -1, job.seconds_left) << job.expected;
  }
}

TEST(Schedulers, have_a_captured_job_each_and_tell_how_to_ask_for_slots) {
  std::set<std::string> captured;
  for (const CapturedJob& job : captured_jobs()) captured.insert(job.key);
  for (const Maker& maker : registry()) {
    EXPECT_TRUE(captured.contains(maker.name)) << maker.name;
    auto scheduler = maker.make();
    EXPECT_STRNE(scheduler->name(), "");
    EXPECT_NE(scheduler->how_to_ask_for(8), "");
    const Traits& traits = scheduler->traits();
    const std::string_view variable = traits.job_variable == nullptr ? "" : traits.job_variable;
    EXPECT_EQ(variable.empty(), std::string(maker.name) == "local") << maker.name;
    EXPECT_TRUE(variable.empty() ||
                std::ranges::any_of(traits.prefixes, [&](auto it) { return variable.starts_with(it); }));
    EXPECT_EQ(scheduler->detected(Environment()).has_value(), std::string(maker.name) == "local");
  }
}

TEST(Schedulers, put_a_job_back_by_a_command_or_by_its_exit_code) {
  auto requeue = [](Texts variables) {
    const CapturedJob job{"", std::move(variables)};
    Environment environment(job.variables);
    const Sources sources = sources_of(job, environment);
    return scheduler_around(sources).scheduler->requeue(sources);
  };
  using Words = std::vector<std::string>;
  EXPECT_EQ(requeue({{"LSB_JOBID", "5"}, {"LSB_JOBINDEX", "2"}}).command, (Words{"brequeue", "5[2]"}));
  EXPECT_EQ(requeue({{"PBS_JOBID", "5.server"}}).command, (Words{"qrerun", "5.server"}));
  EXPECT_EQ(requeue({{"JOB_ID", "5"}, {"SGE_TASK_ID", "undefined"}}).exit_code, 99);

  // sbatch hands the variables of the job from which it is called on to the new one.
  auto by_slurm = [&](std::string number, Texts more) {
    more["SLURM_JOB_ID"] = std::move(number);
    return requeue(more).command;
  };
  const Texts array = {{"SLURM_ARRAY_JOB_ID", "17"}, {"SLURM_ARRAY_TASK_ID", "3"}};
  EXPECT_EQ(by_slurm("19", array), (Words{"scontrol", "requeue", "19"})) << "a task of the array, or submitted by one";
  EXPECT_EQ(by_slurm("17", array), (Words{"scontrol", "requeue", "17_3"})) << "not the whole array";
  for (const char* first : {"SLURM_JOB_ID_HET_GROUP_0", "SLURM_HET_JOB_ID"}) {
    const Texts heterogeneous = {{first, "20"}, {"SLURM_HET_SIZE", "2"}};
    EXPECT_EQ(by_slurm("20", heterogeneous), (Words{"scontrol", "requeue", "20"}));
    EXPECT_EQ(by_slurm("21", heterogeneous), (Words{"scontrol", "requeue", "20"})) << "its other component";
    EXPECT_EQ(by_slurm("22", heterogeneous), (Words{"scontrol", "requeue", "22"})) << "submitted by it";
  }
}

Result<Allocation> allocation_of(const CapturedJob& job, const Environment& environment) {
  const Sources sources = sources_of(job, environment);
  return scheduler_around(sources).scheduler->allocation(sources);
}

// Returns the schedulers of a process on the host n1 as "slurm, not PBS (PBS_JOBID=3): …".
std::string chosen_of(const std::vector<Texts>& variables, Texts files = {}) {
  CapturedJob job{.key = "", .variables = {}, .files = std::move(files)};
  for (const Texts& each : variables) job.variables.insert(each.begin(), each.end());
  Environment environment(job.variables);
  Sources sources = sources_of(job, environment);
  sources.host = "n1.site";
  Around around = scheduler_around(sources);
  for (const std::string& other : around.passed_over) around.key += ", not " + other;
  return around.key;
}

TEST(Schedulers, of_several_the_one_whose_job_has_this_host_counts) {
  const Texts here = {{"SLURM_JOB_ID", "17"}, {"SLURM_JOB_NODELIST", "n[1-2]"}};
  const Texts elsewhere = {{"SLURM_JOB_ID", "17"}, {"SLURM_JOB_NODELIST", "m[1-2]"}};
  const Texts pbs = {{"PBS_JOBID", "3"}}, lsf = {{"LSB_JOBID", "12"}}, sge = {{"JOB_ID", "4"}, {"SGE_TASK_ID", "1"}};
  const Texts node_file = {{"PBS_NODEFILE", "/aux/3"}}, lsf_here = {{"LSB_MCPU_HOSTS", "n2 8 n1 8"}};
  for (const Texts& slurm : {here, elsewhere}) {  // elsewhere: salloc on a login node
    EXPECT_EQ(chosen_of({slurm, pbs}), "slurm, not PBS (PBS_JOBID=3): its hosts are not known");
    EXPECT_EQ(chosen_of({slurm, lsf}), "slurm, not LSF (LSB_JOBID=12): its hosts are not known");
    EXPECT_EQ(chosen_of({slurm, lsf, {{"LSB_MCPU_HOSTS", "old1 8 old2 8"}}}),
              "slurm, not LSF (LSB_JOBID=12): its hosts are others");
    EXPECT_EQ(chosen_of({slurm, sge}),
              "slurm, not Grid Engine (JOB_ID=4 and SGE_TASK_ID are set): its hosts are others");
    EXPECT_EQ(chosen_of({slurm, pbs, node_file}), "slurm, not PBS (PBS_JOBID=3): its hosts are not known");
    EXPECT_EQ(chosen_of({slurm, {{"FLUX_URI", "local:///"}}}), "flux");
  }
  EXPECT_EQ(chosen_of({elsewhere, pbs, node_file}, {{"/aux/3", "n1\nn1\n"}}),
            "pbs, not Slurm (SLURM_JOB_ID=17): its hosts are others");
  EXPECT_EQ(chosen_of({elsewhere, lsf, lsf_here}), "lsf, not Slurm (SLURM_JOB_ID=17): its hosts are others");
  EXPECT_EQ(chosen_of({here, lsf, lsf_here}), "slurm, not LSF (LSB_JOBID=12): this host is in both jobs");
  EXPECT_EQ(chosen_of({{{"SLURM_JOB_ID", "17"}}, pbs, node_file}, {{"/aux/3", "m1\n"}}),
            "pbs, not Slurm (SLURM_JOB_ID=17): its hosts are not known");
}

std::string error_of(CapturedJob job) {
  Environment environment(job.variables);
  auto allocation = allocation_of(job, environment);
  return allocation ? "none: " + text_of(*allocation) : allocation.error().message;
}

TEST(Schedulers, name_what_lies_or_is_cut_off) {
  auto slurm = [](std::string list, std::string cores) {
    return error_of(
        {"slurm", {{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NODELIST", list}, {"SLURM_JOB_CPUS_PER_NODE", cores}}});
  };
  EXPECT_EQ(missing_from(slurm("n[1-3]", "4(x2)"), {"SLURM_JOB_CPUS_PER_NODE=4(x2)", "2 numbers", "3 nodes"}), "");
  EXPECT_EQ(missing_from(slurm("n[1-", "4"), {"SLURM_JOB_NODELIST=n[1-", "bracket", "cut off?"}), "");
  EXPECT_EQ(missing_from(slurm("n1,", "4"), {"SLURM_JOB_NODELIST=n1,", "comma", "cut off?"}), "");
  EXPECT_EQ(missing_from(slurm("", "4"), {"SLURM_JOB_NODELIST=", "empty"}), "");
  EXPECT_EQ(missing_from(slurm("-oProxyCommand", "4"), {"SLURM_JOB_NODELIST=", "'-oProxyCommand'"}), "");
  EXPECT_EQ(missing_from(slurm("n1", "4(x"), {"SLURM_JOB_CPUS_PER_NODE", "'4(x'", "72(x2),36"}), "");

  auto lsf = [](std::string hosts, std::vector<std::string> programs = {}) {
    return error_of(
        {.key = "lsf", .variables = {{"LSB_JOBID", "1"}, {"LSB_MCPU_HOSTS", hosts}}, .programs = std::move(programs)});
  };
  EXPECT_EQ(missing_from(lsf("n1 4 n2"), {"LSB_MCPU_HOSTS", "(n1 4 n2 4)", "'n2'", "cut off?"}), "");
  EXPECT_EQ(missing_from(lsf("n1 0"), {"LSB_MCPU_HOSTS", "(n1 4 n2 4)", "'n1 0'", "cut off?"}), "");
  EXPECT_EQ(missing_from(lsf("n1 2 n1 2"), {"LSB_MCPU_HOSTS", "'n1'", "twice"}), "");
  EXPECT_EQ(missing_from(lsf(""), {"LSB_MCPU_HOSTS", "at least one host"}), "");
  EXPECT_EQ(missing_from(lsf("batch5 1", {"jsrun"}), {"LSB_MCPU_HOSTS", "launch node batch5", "bsub -nnodes 2"}), "");
  EXPECT_EQ(missing_from(error_of({"lsf", {{"LSB_JOBID", "1"}}}),
                         {"LSB_JOBID", "LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE", "LSB_HOSTS"}),
            "");
  EXPECT_EQ(missing_from(error_of({"pbs", {{"PBS_JOBID", "1"}, {"PBS_NODEFILE", "/gone"}}}),
                         {"PBS_NODEFILE=/gone", "No such file or directory"}),
            "");
  EXPECT_EQ(missing_from(error_of({"pbs", {{"PBS_JOBID", "1"}, {"PBS_NODEFILE", "/a"}}, {{"/a", "n1\nn 2\n"}}}),
                         {"PBS_NODEFILE=/a", "'n 2'"}),
            "");
  EXPECT_EQ(
      missing_from(
          error_of({"sge", {{"JOB_ID", "1"}, {"SGE_TASK_ID", "1"}, {"PE_HOSTFILE", "/a"}}, {{"/a", "n1 4 q\nn2"}}}),
          {"PE_HOSTFILE=/a", "'n2'", "'host slots queue processors'", "cut off?"}),
      "");
  EXPECT_EQ(missing_from(error_of({"flux", {{"FLUX_URI", "local:///"}}}), {"resource set R", "flux resource list"}),
            "");
  EXPECT_EQ(missing_from(error_of({.key = "flux",
                                   .variables = {{"FLUX_URI", "local:///"}},
                                   .answers = {{"flux kvs get resource.R", "{\"execution\": {\"R_lite\": ["}}}),
                         {"resource set R", "JSON", "byte 26", "cut off?"}),
            "");
}

std::vector<std::string> contradictions_of(const CapturedJob& job) {
  Environment environment(job.variables);
  auto allocation = allocation_of(job, environment);
  EXPECT_TRUE(allocation) << allocation.error().message;
  return allocation ? allocation->contradictions : std::vector<std::string>{};
}

TEST(Schedulers, find_no_contradiction_in_captured_jobs) {
  for (const CapturedJob& job : captured_jobs())
    EXPECT_EQ(contradictions_of(job), std::vector<std::string>()) << job.expected;
}

TEST(Schedulers, tell_what_contradicts_what) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(contradictions_of({"slurm",
                               {{"SLURM_JOB_ID", "1"},
                                {"SLURM_JOB_NODELIST", "n[1-2]"},
                                {"SLURM_JOB_NUM_NODES", "3"},
                                {"SLURM_NTASKS", "4"},
                                {"SLURM_TASKS_PER_NODE", "2,1"}}}),
            (Lines{"SLURM_JOB_NUM_NODES=3, but SLURM_JOB_NODELIST has 2 hosts",
                   "SLURM_NTASKS=4, but SLURM_TASKS_PER_NODE has 3 tasks"}));
  EXPECT_EQ(contradictions_of({"lsf",
                               {{"LSB_JOBID", "1"},
                                {"LSB_MCPU_HOSTS", "n1 4 n2 4"},
                                {"LSB_DJOB_NUMPROC", "x"},
                                {"LSB_DJOB_HOSTFILE", "/a"},
                                {"LSB_HOSTS", "n1 n1 n1 n1 n3"}},
                               {{"/a", "n1\nn1\nn1\nn2\nn2\nn2\nn2\n"}}}),
            (Lines{"LSB_DJOB_HOSTFILE=/a has 3 slots on n1, but LSB_MCPU_HOSTS has 4 slots",
                   "LSB_HOSTS has no slot on n2, but LSB_MCPU_HOSTS has 4 slots",
                   "LSB_DJOB_NUMPROC=x, but LSB_MCPU_HOSTS has 8 slots"}));
  EXPECT_EQ(
      contradictions_of({"lsf", {{"LSB_JOBID", "1"}, {"LSB_MCPU_HOSTS", "n1 1"}, {"LSB_DJOB_HOSTFILE", "/gone"}}}),
      (Lines{"LSB_DJOB_HOSTFILE=/gone: the file /gone cannot be read: No such file or directory"}));
  EXPECT_EQ(contradictions_of(
                {.key = "pbs",
                 .variables = {{"PBS_JOBID", "1"}, {"PBS_NODEFILE", "/a"}, {"PBS_NP", "3"}, {"PBS_NUM_NODES", "1"}},
                 .files = {{"/a", "n1.site\nn2.site\n"}},
                 .answers = {{"qstat -f 1", "Job Id: 1\n    exec_host = n1/0*4+n3/0*4\n"}}}),
            (Lines{"PBS_NP=3, but PBS_NODEFILE=/a has 2 lines", "PBS_NUM_NODES=1, but PBS_NODEFILE=/a has 2 hosts",
                   "PBS_NODEFILE=/a has n2.site, but exec_host of `qstat -f` has no such host"}));
  EXPECT_EQ(contradictions_of(
                {"sge",
                 {{"JOB_ID", "1"}, {"SGE_TASK_ID", "1"}, {"PE_HOSTFILE", "/a"}, {"NSLOTS", "8"}, {"NHOSTS", "2"}},
                 {{"/a", "n1 4 q\n"}}}),
            (Lines{"NSLOTS=8, but PE_HOSTFILE=/a has 4 slots", "NHOSTS=2, but PE_HOSTFILE=/a has 1 host"}));
}

// Returns the text with bytes cut, doubled, mixed and overwritten, mostly by characters that the grammars use.
std::string damaged(std::string text, std::mt19937& random) {
  constexpr std::string_view letters = "[](),-x:0129 \n\t{}\"\\n.+=\x01\xff";
  auto up_to = [&](std::size_t most) { return std::uniform_int_distribution<std::size_t>(0, most)(random); };
  for (std::size_t rounds = up_to(3); rounds-- > 0;) {
    std::size_t at = up_to(text.size()), length = up_to(std::min<std::size_t>(8, text.size() - at));
    switch (up_to(4)) {
      case 0: text.resize(at); break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(at, std::string(up_to(3) + 1, letters[up_to(letters.size() - 1)])); break;
      case 3: text.insert(up_to(text.size()), text.substr(at, length)); break;
      default: text.insert(at, "99999999999999999999"); break;
    }
  }
  return text;
}

TEST(Schedulers, survive_damaged_jobs_with_hosts_or_a_named_error) {
  std::mt19937 random(20);
  int read = 0, refused = 0;
  for (int round = 0; round < 1000; ++round) {
    for (CapturedJob job : captured_jobs()) {
      for (Texts* texts : {&job.variables, &job.files, &job.answers})
        for (auto& [name, text] : *texts)
          if (random() % 2 == 0) text = damaged(text, random);
      Environment environment(job.variables);
      auto scheduler = scheduler_around(sources_of(job, environment)).scheduler;
      Sources sources = sources_of(job, environment);
      (void)scheduler->time_left(sources);
      (void)scheduler->requeue(sources);
      (void)scheduler->times_requeued(sources);
      auto allocation = scheduler->allocation(sources);
      (allocation ? read : refused) += 1;
      if (!allocation) {
        ASSERT_GT(allocation.error().message.size(), 10u);
        continue;
      }
      ASSERT_FALSE(allocation->hosts.empty());
      ASSERT_TRUE(std::ranges::all_of(allocation->hosts, [](const Host& host) {
        return is_host_name(host.name) && host.slots >= 0 && host.cores >= 0 && host.gpus >= -1;
      }));
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace hvd::schedulers
