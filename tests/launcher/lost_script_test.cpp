// What `scontrol -o show job` of Slurm 22.05 prints about a job with --no-kill, and what an agent makes of it.
#include "launcher/agent/lost_script.hpp"

#include <gtest/gtest.h>

#include "schedulers/slurm/batch_script.hpp"

namespace hvd::launcher {
namespace {

using schedulers::batch_script_of;
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

}  // namespace
}  // namespace hvd::launcher
