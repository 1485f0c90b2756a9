#include "jobscripts/script.hpp"

#include <gtest/gtest.h>

#include <tuple>

#include "missing_from.hpp"
namespace hvd::jobscripts {
namespace {

ScriptRequest request(const char* time = "2h") {
  ScriptRequest wanted;
  wanted.time = time;
  wanted.account = "abc123";
  wanted.command = {"python", "train.py"};
  return wanted;
}

std::string error_of(std::string_view site, const ScriptRequest& wanted) {
  auto script = write_script(*find_site(site), wanted);
  return script ? "" : script.error().message;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(Scripts, have_the_resources_of_the_machine) {
  ScriptRequest wanted = request();
  wanted.nodes = 4;
  auto script = write_script(*find_site("perlmutter"), wanted);
  ASSERT_TRUE(script) << script.error().message;
  for (const char* line : {"#SBATCH --nodes=4\n", "#SBATCH --ntasks-per-node=4\n", "#SBATCH --cpus-per-task=32\n",
                           "#SBATCH --gpus-per-node=4\n", "#SBATCH --time=02:00:00\n", "#SBATCH --qos=regular\n",
                           "#SBATCH --constraint=gpu\n", "#SBATCH --job-name=train\n", "--gpu-bind=none"})
    EXPECT_TRUE(has(*script, line)) << line << *script;
  script = write_script(*find_site("summit"), wanted);
  ASSERT_TRUE(script) << script.error().message;
  for (const char* line :
       {"#BSUB -nnodes 4\n", "#BSUB -P abc123\n", "#BSUB -W 2:00\n",
        "jsrun --nrs 4 --rs_per_host 1 --tasks_per_rs 6 --cpu_per_rs 42", "--gpu_per_rs 6", "--bind packed:7"})
    EXPECT_TRUE(has(*script, line)) << line << *script;
}

TEST(Scripts, can_be_written_for_every_site) {
  ScriptRequest wanted = request();
  wanted.ranks_per_node = 4;  // sites that are a batch system alone do not know these
  wanted.cpus_per_rank = 7;
  for (auto [name, text] : compiled_sites()) {
    auto script = write_script(*find_site(name), wanted);
    EXPECT_TRUE(script) << name << ": " << script.error().message;
  }
}

TEST(Scripts, of_elastic_jobs_of_slurm_survive_the_loss_of_a_node) {
  ScriptRequest wanted = request();
  wanted.nodes = 3;
  wanted.is_elastic = true;
  wanted.spares = 4;
  wanted.horovodrun_flags = {"--min-np=4", "--spares=4"};
  auto script = write_script(*find_site("perlmutter"), wanted);
  ASSERT_TRUE(script) << script.error().message;
  for (const char* line : {"#SBATCH --no-kill\n", "#SBATCH --nodes=3\n", "#SBATCH --ntasks-per-node=4\n",
                           "launch=(horovodrun -np 8 --min-np=4 --spares=4)\n"})
    EXPECT_TRUE(has(*script, line)) << line << *script;
  for (const char* word : {"launch=(srun", "--gpu-bind", "--cpus-per-task=\"$SLURM"})
    EXPECT_FALSE(has(*script, word)) << word << *script;
  wanted.is_requeued = true;
  wanted.max_requeues = 5;
  EXPECT_TRUE(has(*write_script(*find_site("perlmutter"), wanted),
                  "export HOROVOD_MAX_REQUEUES=\"${HOROVOD_MAX_REQUEUES:-5}\"\n"));
  wanted.least_ranks = 9;
  EXPECT_EQ(testing::missing_from(error_of("perlmutter", wanted), {"--min-np 9 is more than the 8 ranks", "--nodes"}),
            "");
  wanted.spares = 12;
  EXPECT_EQ(testing::missing_from(error_of("perlmutter", wanted), {"--spares 12", "12 ranks"}), "");
  EXPECT_FALSE(has(*write_script(*find_site("perlmutter"), request()), "no-kill"));
}

TEST(Scripts, of_elastic_jobs_have_the_flags_of_a_site_for_horovodrun) {
  ScriptRequest wanted = request();
  wanted.ranks_per_node = 2;
  wanted.is_elastic = true;
  for (bool is_elastic : {false, true}) {
    wanted.is_elastic = is_elastic;
    auto script = write_script(*parse_site("scheduler = lsf\nlauncher_flag = --tcp\n", "mine"), wanted);
    ASSERT_TRUE(script) << script.error().message;
    EXPECT_TRUE(has(*script, "launch=(horovodrun -np 2 --tcp)\n")) << *script;
  }
  wanted.spares = 1;
  const std::string script = *write_script(*find_site("lsf"), wanted);
  EXPECT_TRUE(has(script, "#BSUB -n 2\n") && has(script, "launch=(horovodrun -np 1)\n")) << script;
}

TEST(Scripts, are_refused_without_what_the_site_demands) {
  ScriptRequest wanted = request();
  wanted.account = "";
  EXPECT_TRUE(has(error_of("summit", wanted), "--account"));
  EXPECT_EQ(testing::missing_from(error_of("slurm", wanted), {"'slurm'", "--ranks-per-node", "--gpus-per-node"}), "");
  EXPECT_TRUE(has(error_of("summit", request("")), "--time"));
  EXPECT_TRUE(has(error_of("summit", request("2:00")), "--time"));
  EXPECT_TRUE(has(error_of("lassen", request("3d")), "12h"));
}

TEST(Scripts, have_the_queue_and_the_time_of_a_job_of_their_size) {
  ScriptRequest wanted = request("3h");
  wanted.nodes = 4;
  EXPECT_TRUE(has(*write_script(*find_site("polaris"), wanted), "#PBS -q preemptable\n"));
  EXPECT_EQ(testing::missing_from(error_of("summit", wanted), {"--time", "4 nodes of summit", "2h, not 3h"}), "");
  wanted.nodes = 10;
  EXPECT_TRUE(has(*write_script(*find_site("polaris"), wanted), "#PBS -q prod\n"));
  wanted.nodes = 46;
  EXPECT_EQ(error_of("summit", wanted), "");
  wanted.time = "25h";
  EXPECT_TRUE(has(error_of("summit", wanted), "46 nodes"));
}

TEST(Scripts, leave_the_time_of_a_named_queue_to_the_queue) {
  ScriptRequest wanted = request("24h");
  wanted.queue = "killable";
  EXPECT_EQ(error_of("summit", wanted), "");
  wanted.time = "48h";
  EXPECT_TRUE(has(error_of("summit", wanted), "more than 24h; 48h"));
  wanted.queue = "preemptable";
  EXPECT_EQ(error_of("polaris", wanted), "");
  wanted = request("48h");
  wanted.queue = "preemptable";
  wanted.nodes = 10;
  EXPECT_EQ(error_of("polaris", wanted), "") << "smaller jobs may take 72h there";
  wanted = request("13h");
  wanted.queue = "any";
  EXPECT_EQ(testing::missing_from(error_of("frontier", wanted), {"more than 12h; 13h"}), "");
}

TEST(Scripts, give_each_rank_cores_of_its_own) {
  ScriptRequest wanted = request();
  for (auto [site, beside_gpus, shares] :
       {std::tuple("perlmutter", "--cpu-bind=\"map_ldom:3,2,1,0\"", "--cpu-bind=cores"),
        std::tuple("frontier", "--cpu-bind=\"mask_cpu:fe", "--cpu-bind=cores"),
        std::tuple("polaris", "--cpu-bind \"list:24-31,56-63:", "--cpu-bind depth --depth 16")}) {
    wanted.ranks_per_node = {};
    EXPECT_TRUE(has(*write_script(*find_site(site), wanted), beside_gpus)) << site;
    wanted.ranks_per_node = 2;
    std::string script = *write_script(*find_site(site), wanted);
    EXPECT_TRUE(has(script, shares)) << site << script;
    EXPECT_FALSE(has(script, beside_gpus)) << site << script;
  }
}

TEST(Scripts, are_refused_for_more_than_a_node_has) {
  ScriptRequest wanted = request();
  wanted.gpus_per_node = 8;
  EXPECT_TRUE(has(error_of("summit", wanted), "has 6 GPUs, not 8"));
  wanted = request();
  wanted.ranks_per_node = 43;
  EXPECT_TRUE(has(error_of("summit", wanted), "42 CPUs"));
  wanted.ranks_per_node = 6;
  wanted.cpus_per_rank = 8;
  EXPECT_TRUE(has(error_of("summit", wanted), "6 ranks of 8 each"));
}

TEST(Scripts, of_more_ranks_or_CPUs_than_a_number_holds_are_refused) {
  ScriptRequest wanted = request();
  wanted.nodes = 2000000000;
  EXPECT_TRUE(has(error_of("perlmutter", wanted), "8000000000 ranks, more than a job can have"));
  wanted = request();
  wanted.ranks_per_node = 2;
  wanted.cpus_per_rank = 2000000000;
  EXPECT_TRUE(has(error_of("perlmutter", wanted), "128 CPUs for jobs, too few for 2 ranks of 2000000000"));
  EXPECT_TRUE(has(error_of("slurm", wanted), "2 ranks of 2000000000 CPUs each are more than a node can have"));
}

// Whatever a site's file leaves out, a script comes out, or the user is told what to give.
TEST(Scripts, of_sites_that_say_little_are_written_or_lack_a_flag) {
  for (const char* scheduler : {"slurm", "lsf", "lsf\nlauncher = jsrun", "pbs", "pbs\nlauncher = mpiexec"})
    for (const char* more : {"", "ranks_per_node = 2\n", "cpus_per_node = 8\n", "gpus_per_node = 0\n", "select = x\n",
                             "gpus_per_node = 2\ncpus_per_core = 2\n"})
      for (bool is_full : {false, true}) {
        if (std::string_view(more).starts_with("select") && !std::string_view(scheduler).starts_with("pbs")) continue;
        auto site = parse_site(std::string("scheduler = ") + scheduler + "\n" + more, "mine");
        ASSERT_TRUE(site) << site.error().message;
        ScriptRequest wanted = request();
        wanted.is_requeued = is_full;
        wanted.container = is_full ? "x.sif" : "";
        if (is_full) wanted.queue = "name";
        if (is_full && reads(site->scheduler, "constraint")) wanted.constraint = "name";
        auto script = write_script(*site, wanted);
        EXPECT_TRUE(script || has(script.error().message, "--ranks-per-node N") ||
                    has(script.error().message, "--cpus-per-rank N is missing"))
            << script.error().message;
      }
  ScriptRequest wanted = request();
  wanted.ranks_per_node = 2;
  EXPECT_TRUE(has(error_of("pbs", wanted), "--cpus-per-rank N is missing"));
  EXPECT_TRUE(has(*write_script(*parse_site("scheduler = lsf\n", "mine"), wanted), "#BSUB -P abc123\n"));
}

TEST(Scripts, show_what_was_asked_for_and_the_MPI_of_the_host_in_an_image) {
  ScriptRequest wanted = request();
  wanted.container = "x.sif";
  for (const char* site : {"summit", "lassen", "sierra", "frontier", "polaris"}) {
    wanted.container_mpi = "";
    EXPECT_TRUE(has(*write_script(*find_site(site), wanted), ":/host/mpi")) << site;
    wanted.container_mpi = "/opt/my mpi";
    std::string script = *write_script(*find_site(site), wanted);
    EXPECT_TRUE(has(script, " --bind '/opt/my mpi:/host/mpi' --bind '/opt/my mpi' x.sif")) << script;
    EXPECT_FALSE(has(script, "_DIR:?") || has(script, "_ROOT:?")) << script;
  }
  wanted.container_mpi = "";
  wanted.container_binds = {"/data", "/scratch:/in"};
  wanted.variables = {{"HOROVOD_LOG_LEVEL", "DEBUG"}};
  EXPECT_TRUE(has(*write_script(*find_site("slurm"),
                                [&] {
                                  ScriptRequest small = wanted;
                                  small.ranks_per_node = 1;
                                  return small;
                                }()),
                  "apptainer exec --bind /data --bind /scratch:/in x.sif"));
  std::string script = *write_script(*find_site("perlmutter"), wanted);
  EXPECT_TRUE(has(script,
                  " --volume /data:/data --volume /scratch:/in --env CUDA_DEVICE_ORDER --env HOROVOD_LOG_LEVEL "
                  "x.sif"))
      << script;
  auto site = parse_site("scheduler = slurm\nranks_per_node = 1\ncontainer = shifter --image\n", "mine");
  auto refused = write_script(*site, wanted);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(has(refused.error().message, "'shifter --image'"));
}

TEST(Scripts, take_no_value_that_a_scheduler_could_misread) {
  for (const char* bad : {"a b", "a\n#SBATCH --nodes=999", "$(touch x)", "`x`", "a\"b", "a'b", "a;b", "-A"})
    for (auto member :
         {&ScriptRequest::account, &ScriptRequest::queue, &ScriptRequest::constraint, &ScriptRequest::job_name}) {
      ScriptRequest wanted = request();
      wanted.*member = bad;
      EXPECT_TRUE(has(error_of("summit", wanted), "a name of letters")) << bad;
    }
  for (const char* bad : {"R&D", "exp/run1", "a|b", "a[1-9]", "a*", "~"}) {
    ScriptRequest wanted = request();
    wanted.job_name = bad;
    EXPECT_TRUE(has(error_of("summit", wanted), "--job-name: expected a name of letters")) << bad;
    if (std::string_view(bad).find('/') != std::string_view::npos) continue;
    wanted = request();
    wanted.modules = {"gcc/12", bad};
    EXPECT_TRUE(has(error_of("summit", wanted), "--modules: expected a name of letters")) << bad;
  }
  ScriptRequest wanted = request();
  wanted.constraint = "gpu&hbm80g|[rack1*4]";
  EXPECT_EQ(error_of("perlmutter", wanted), "");
  EXPECT_EQ(testing::missing_from(error_of("summit", wanted), {"--constraint", "slurm", "found lsf", "leave"}), "");
  wanted.constraint = "";
  wanted.command = {"python", "a\nb"};
  EXPECT_TRUE(has(error_of("summit", wanted), "line break"));
}

TEST(Scripts, have_every_word_of_the_command_as_one_word) {
  EXPECT_EQ(quoted("train.py"), "train.py");
  EXPECT_EQ(quoted("a b"), "'a b'");
  EXPECT_EQ(quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(quoted("$(x)"), "'$(x)'");
  EXPECT_EQ(quoted(""), "''");
  EXPECT_EQ(quoted("~"), "'~'");
}

TEST(Scripts, are_warned_and_put_back_only_on_request) {
  ScriptRequest wanted = request();
  for (const char* site : {"perlmutter", "summit", "polaris"}) {
    wanted.is_requeued = false;
    EXPECT_FALSE(has(*write_script(*find_site(site), wanted), "USR1")) << site;
    wanted.is_requeued = true;
    EXPECT_TRUE(has(*write_script(*find_site(site), wanted), "USR1")) << site;
  }
  wanted.time = "10m";
  EXPECT_TRUE(has(error_of("summit", wanted), "10 minutes"));
}

}  // namespace
}  // namespace hvd::jobscripts
