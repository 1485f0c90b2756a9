#include "launcher/targets/requeue.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "in_own_folder.hpp"
#include "launcher/wire/messages.hpp"

namespace hvd::launcher {
namespace {

struct Requeue : testing::InOwnFolder {
  // A job of Slurm with a scontrol that prints this.
  Environment in_slurm(const char* restarts = nullptr, const std::string& shown = "") const {
    write("scontrol", "#!/bin/sh\n[ \"$*\" != '-o show job 17' ] || echo '" + shown + "'\n");
    std::filesystem::permissions(folder_ + "/scontrol", std::filesystem::perms::owner_all);
    Environment environment;
    environment.set("PATH", folder_);
    environment.set("SLURM_JOB_ID", "17");
    environment.set("SLURM_JOB_NODELIST", "n1");
    if (restarts != nullptr) environment.set("SLURM_RESTART_COUNT", restarts);
    return environment;
  }
};

struct Site {
  std::string folder;
  std::vector<std::vector<std::string>> commands{};
  Requeuing::Answer answer{true, ""};
  Requeued operator()(const Environment& environment, int most) {
    Requeuing how;
    how.most = most;
    how.counters = folder;
    how.run = [this](const std::vector<std::string>& command) {
      commands.push_back(command);
      return answer;
    };
    return requeue(JobAround(environment), how);
  }
};

TEST_F(Requeue, asks_the_scheduler_once_and_succeeds) {
  Site site{folder_};
  Requeued done = site(in_slurm(), 3);
  EXPECT_EQ(done.exit_code, 0) << done.text;
  EXPECT_EQ(site.commands, (std::vector<std::vector<std::string>>{{"scontrol", "requeue", "17"}}));
}

TEST_F(Requeue, is_done_as_often_as_was_allowed) {
  Site site{folder_};
  EXPECT_EQ(site(in_slurm("2"), 3).exit_code, 0);
  Requeued done = site(in_slurm("3"), 3);
  EXPECT_EQ(done.exit_code, again_code);
  EXPECT_NE(done.text.find("3 times"), std::string::npos) << done.text;
  EXPECT_EQ(site.commands.size(), 1u);
}

TEST_F(Requeue, is_counted_by_slurm_and_not_by_a_variable_that_the_job_has_inherited) {
  Site site{folder_};
  EXPECT_EQ(site(in_slurm("3", "JobId=17 JobState=RUNNING Requeue=1 Restarts=0 BatchFlag=1"), 3).exit_code, 0);
  EXPECT_EQ(site(in_slurm("0", "JobId=17 JobState=RUNNING Requeue=1 Restarts=3 BatchFlag=1"), 3).exit_code, again_code);
  EXPECT_EQ(site(in_slurm("3", "slurm_load_jobs error: Unable to contact"), 3).exit_code, again_code);
}

TEST_F(Requeue, is_not_done_unless_asked_for) {
  Site site{folder_};
  EXPECT_EQ(site(in_slurm(), 0).exit_code, again_code);
  EXPECT_EQ(site(Environment(), 5).exit_code, again_code) << "there is no scheduler";
  EXPECT_TRUE(site.commands.empty());
}

TEST_F(Requeue, that_the_site_forbids_is_told_in_its_words) {
  Site site{folder_};
  site.answer = {false, "Requested operation is presently disabled\n"};
  Requeued done = site(in_slurm(), 3);
  EXPECT_EQ(done.exit_code, again_code);
  EXPECT_NE(done.text.find("`scontrol requeue 17` was refused: Requested operation"), std::string::npos) << done.text;
}

TEST_F(Requeue, is_counted_in_a_file_where_the_scheduler_does_not_count) {
  Environment environment;
  environment.set("PBS_JOBID", "8.server");
  environment.set("PBS_NODEFILE", "/dev/null");
  environment.set("PBS_ENVIRONMENT", "PBS_BATCH");
  Site site{folder_};
  EXPECT_EQ(site(environment, 2).exit_code, 0);
  EXPECT_EQ(site(environment, 2).exit_code, 0);
  EXPECT_EQ(site(environment, 2).exit_code, again_code);
  EXPECT_EQ(site.commands.size(), 2u);
}

TEST_F(Requeue, runs_the_command_and_hears_what_it_says) {
  EXPECT_TRUE(run_requeue_command({"true"}).is_done);
  Requeuing::Answer refused = run_requeue_command({"sh", "-c", "echo no; exit 3"});
  EXPECT_FALSE(refused.is_done);
  EXPECT_EQ(refused.text, "no\n");
}

}  // namespace
}  // namespace hvd::launcher
