// What `scontrol -o show job` of Slurm 22.05 prints about a job with --no-kill, and what an agent makes of it.
#include "launcher/agent/lost_script.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "in_own_folder.hpp"
#include "missing_from.hpp"
#include "native/posix/files/text_file.hpp"
#include "schedulers/slurm/batch_script.hpp"

namespace hvd::launcher {
namespace {

using schedulers::batch_script_of;
using testing::missing_from;
using Fate = schedulers::BatchScript::Fate;

std::string shown(const std::string& state, const std::string& nodes, const std::string& more) {
  return "JobId=1 JobName=program UserId=root(0) JobState=" + state +
         " Reason=None Dependency=(null) Requeue=1 Restarts=3 " + more +
         " ReqNodeList=(null) ExcNodeList=(null) NodeList=" + nodes +
         " BatchHost=n1 NumNodes=2 Command=/shared/script StdErr=/shared/out StdIn=/dev/null StdOut=/shared/out\n";
}

TEST(LostScript, is_lost_when_slurm_has_taken_its_node_out_of_the_job) {
  const schedulers::BatchScript script = batch_script_of(shown("RUNNING", "n[2-3]", "BatchFlag=1"));
  EXPECT_EQ(script.fate, Fate::lost);
  EXPECT_TRUE(script.may_requeue);
  EXPECT_EQ(script.restarts, 3);
  EXPECT_EQ(script.host, "n1");
  EXPECT_EQ(script.output, "/shared/out");
}

TEST(LostScript, is_asked_for_again_while_its_node_belongs_to_the_job_or_nobody_answers) {
  EXPECT_EQ(batch_script_of(shown("RUNNING", "n[1-3]", "BatchFlag=1")).fate, Fate::unknown);
  EXPECT_EQ(batch_script_of("").fate, Fate::unknown);
  EXPECT_EQ(batch_script_of("slurm_load_jobs error: Unable to contact slurm controller\n").fate, Fate::unknown);
}

TEST(LostScript, is_of_no_concern_in_jobs_that_have_ended_or_never_had_one) {
  EXPECT_EQ(batch_script_of(shown("COMPLETING", "n2", "BatchFlag=1")).fate, Fate::over);
  EXPECT_EQ(batch_script_of(shown("RUNNING", "n2", "BatchFlag=0")).fate, Fate::over);
}

TEST(LostScript, is_nothing_that_an_agent_outside_of_a_batch_job_waits_for) {
  Environment environment;
  environment.set("SLURM_JOB_ID", "7");
  stand_in_for_lost_script(environment);
}

TEST(LostScript, is_asked_for_by_one_agent_every_10_seconds_and_by_few_of_a_large_job) {
  for (const int nodes : {1, 2, 3, 30, 31, 59, 1000, 9408}) {
    std::set<std::chrono::seconds::rep> waits;
    int last = 0;
    for (int place = 1; place < nodes; ++place) {
      const auto turn = turn_of_agent(place, nodes);
      if (!turn) continue;
      last = place;
      EXPECT_TRUE(waits.insert(turn->wait.count()).second) << place << " of " << nodes;
      EXPECT_LE(turn->wait, turn->pause) << "each asks once before one asks again";
      EXPECT_EQ(turn->wait.count() % 10, 0);
    }
    EXPECT_EQ(waits.empty(), nodes == 1);
    EXPECT_GE(waits.size(), static_cast<std::size_t>(std::min(nodes - 1, 15)));
    EXPECT_LE(waits.size(), static_cast<std::size_t>(std::min(nodes - 1, 29)));
    EXPECT_GE(2 * last, nodes - 1) << "agents of only a part of the job would be lost with that part";
  }
  EXPECT_EQ(turn_of_agent(1, 2)->pause.count(), 10);
}

// Agents with a stand-in of Slurm along PATH, which tells twice that the script is lost, then what comes after that.
class LostScripts : public testing::InOwnFolder {
 protected:
  LostScripts() {
    path_ = ::getenv("PATH");
    ::setenv("PATH", (folder_ + ":" + path_).c_str(), 1);
    environment_.set("ENVIRONMENT", "BATCH");
    environment_.set("SLURM_JOB_ID", "7");
    write("out", "");
    stand_in("scancel", "");
  }
  ~LostScripts() override { ::setenv("PATH", path_.c_str(), 1); }

  void stand_in(const std::string& name, const std::string& script) {
    write(name, "#!/bin/sh\ncd " + folder_ + "\necho " + name + " \"$@\" >>calls\n" + script);
    ASSERT_EQ(::chmod((folder_ + "/" + name).c_str(), 0700), 0);
  }

  void stand_in_for_scontrol(const std::string& then, const std::string& requeue, const std::string& job_options) {
    std::string lost = shown("RUNNING", "n2", "BatchFlag=1");
    lost.replace(lost.find("Requeue=1 Restarts=3"), 20, job_options);
    lost.replace(lost.find("/shared/out\n"), 11, folder_ + "/out");
    write("shown.1", lost);
    write("shown.2", lost);
    write("shown.3", then.empty() ? lost : then);
    stand_in("scontrol",
             "case \"$*\" in\n*config) echo 'SlurmdTimeout = 300 sec' ;;\n"
             "requeue*) " +
                 requeue + " ;;\n*) echo >>asked; cat shown.$(wc -l <asked) ;;\nesac\n");
  }

  std::string text_of(const std::string& name) { return posix::read_text(folder_ + "/" + name).value(); }
  // Returns what was called, but for the questions.
  std::string acts() {
    std::istringstream lines(text_of("calls"));
    std::string acts;
    for (std::string line; std::getline(lines, line);)
      if (line.find(" show ") == std::string::npos) acts += line + "\n";
    return acts;
  }

  Environment environment_;
  std::string path_;
};

TEST_F(LostScripts, are_put_back_once_and_not_cancelled_by_an_agent_that_comes_too_late) {
  stand_in_for_scontrol(shown("PENDING", "", "BatchFlag=1"), "mkdir requeued", "Requeue=1 Restarts=3");
  stand_in_for_lost_script(environment_);
  stand_in_for_lost_script(environment_);
  EXPECT_EQ(acts(), "scontrol requeue 7\nscontrol requeue 7\n");
}

TEST_F(LostScripts, are_cancelled_if_slurm_does_not_put_them_back) {
  stand_in_for_scontrol("", "exit 1", "Requeue=1 Restarts=3");
  stand_in_for_lost_script(environment_);
  EXPECT_EQ(acts(), "scontrol requeue 7\nscancel 7\n");
  EXPECT_EQ(missing_from(text_of("out"), {"the job 7 is cancelled, because it could not be put back"}), "");
}

TEST_F(LostScripts, are_cancelled_if_the_job_does_not_allow_another_start) {
  stand_in_for_scontrol("", "", "Requeue=0 Restarts=0");
  stand_in_for_lost_script(environment_);
  stand_in_for_scontrol("", "", "Requeue=1 Restarts=3");
  environment_.set("HOROVOD_MAX_REQUEUES", "3");
  stand_in_for_lost_script(environment_);
  EXPECT_EQ(acts(), "scancel 7\nscancel 7\n");
  EXPECT_EQ(missing_from(text_of("out"), {"because it does not allow to be put back into the queue\n",
                                          "because it has been put back into the queue 3 times, and --max-requeues "
                                          "(HOROVOD_MAX_REQUEUES) allows 3\n"}),
            "");
}

TEST_F(LostScripts, of_a_job_array_are_those_of_one_task) {
  environment_.set("SLURM_ARRAY_JOB_ID", "7");
  environment_.set("SLURM_ARRAY_TASK_ID", "3");
  stand_in_for_scontrol("", "", "Requeue=1 Restarts=3");
  stand_in_for_lost_script(environment_);
  EXPECT_EQ(text_of("calls"), "scontrol show config\nscontrol -o show job 7_3\nscontrol requeue 7_3\n");
}

}  // namespace
}  // namespace hvd::launcher
