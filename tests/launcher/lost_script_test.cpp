// What `scontrol -o show job` of Slurm 22.05 prints about a job with --no-kill, and what an agent makes of it.
#include "launcher/agent/lost_script.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

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

TEST(LostScript, is_told_of_in_an_output_file_whose_name_has_blanks) {
  for (const std::string name : {"/home/a b/out file", "/shared/x=1 y/out"})
    for (const char* after : {" Power= \n", " TresPerNode=gres/gpu:4 \n", "\n"})
      EXPECT_EQ(batch_script_of(" JobState=RUNNING BatchHost=n1 StdOut=" + name + after).output, name);
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

TEST(LostScript, is_asked_for_by_one_agent_every_10_seconds_and_by_few_of_a_large_job_at_first) {
  for (const int nodes : {1, 2, 3, 30, 31, 59, 1000, 9408}) {
    std::set<std::chrono::seconds::rep> waits;
    int last = 0;
    for (int place = 1; place < nodes; ++place) {
      const Turn turn = turn_of_agent(place, nodes);
      if (turn.wait >= std::chrono::seconds(300)) continue;
      last = place;
      EXPECT_TRUE(waits.insert(turn.wait.count()).second) << place << " of " << nodes;
      EXPECT_LE(turn.wait, turn.pause) << "each asks once before one asks again";
      EXPECT_EQ(turn.wait.count() % 10, 0);
    }
    EXPECT_EQ(waits.empty(), nodes == 1);
    EXPECT_GE(waits.size(), static_cast<std::size_t>(std::min(nodes - 1, 15)));
    EXPECT_LE(waits.size(), static_cast<std::size_t>(std::min(nodes - 1, 29)));
    EXPECT_GE(2 * last, nodes - 1) << "agents of only a part of the job would be lost with that part";
  }
  EXPECT_EQ(turn_of_agent(1, 2).pause.count(), 10);
}

TEST(LostScript, is_asked_for_by_every_agent_in_the_end_because_few_nodes_may_have_one) {
  for (const int nodes : {31, 59, 60, 61, 1000, 9408}) {
    std::set<std::chrono::seconds::rep> late;
    std::size_t first = 0;
    for (int place = 1; place < nodes; ++place) {
      const Turn turn = turn_of_agent(place, nodes);
      if (turn.wait < std::chrono::seconds(300)) ++first;
      else EXPECT_TRUE(late.insert(turn.wait.count()).second) << place << " of " << nodes << ": two in one second";
    }
    EXPECT_EQ(first + late.size(), static_cast<std::size_t>(nodes - 1));
    EXPECT_LE(*late.rbegin(), 300 + nodes) << "the seconds of agents that come last";
  }
}

TEST(JobOfSlurm, has_ended_if_slurm_tells_it_and_not_if_nobody_answers) {
  for (const char* state :
       {"CANCELLED", "COMPLETING", "COMPLETED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "FAILED", "OUT_OF_MEMORY"})
    EXPECT_TRUE(schedulers::has_job_ended(shown(state, "n[1-3]", "BatchFlag=0"))) << state;
  for (const char* state : {"RUNNING", "SUSPENDED", "PENDING", "CONFIGURING", "RESIZING"})
    EXPECT_FALSE(schedulers::has_job_ended(shown(state, "n[1-3]", "BatchFlag=0"))) << state;
  for (const char* text : {"", "slurm_load_jobs error: Unable to contact slurm controller\n"})
    EXPECT_FALSE(schedulers::has_job_ended(text));
}

// Agents with a stand-in of Slurm along PATH, which tells twice that the script is lost, then what comes after that.
// They wait in a time of their own.
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
    write("shown.then", then.empty() ? lost : then);
    stand_in("scontrol",
             "case \"$*\" in\n*config) echo 'SlurmdTimeout = 300 sec' ;;\n"
             "requeue*) " +
                 requeue + " ;;\n*) echo >>asked; cat shown.$(wc -l <asked) || cat shown.then ;;\nesac\n");
  }

  void act_as_agent() { stand_in_for_lost_script(environment_, pace_); }
  // The pauses that were made since this was called last, in seconds.
  std::vector<int> pauses() { return std::exchange(pauses_, {}); }

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

 private:
  std::vector<int> pauses_;
  Clock::time_point now_;
  Pace pace_{.now = [this] { return now_; },
             .pause =
                 [this](std::chrono::seconds span) {
                   now_ += span;
                   pauses_.push_back(static_cast<int>(span.count()));
                 }};
};

TEST_F(LostScripts, are_put_back_once_and_not_cancelled_by_an_agent_that_comes_too_late) {
  stand_in_for_scontrol(shown("PENDING", "", "BatchFlag=1"), "mkdir requeued", "Requeue=1 Restarts=3");
  act_as_agent();
  act_as_agent();
  EXPECT_EQ(acts(), "scontrol requeue 7\nscontrol requeue 7\n");
}

// slurmctld may begin anew just then.
TEST_F(LostScripts, are_put_back_and_cancelled_by_a_slurm_that_answers_late) {
  const std::string over = shown("PENDING", "", "BatchFlag=1");
  const std::string fail = "echo 'slurm_requeue error: Unable to contact slurm controller' >&2; exit 1";
  // Succeeds at this attempt.
  auto at = [&](const std::string& number) {
    return "echo >>tried; [ $(wc -l <tried) -ge " + number + " ] || { " + fail + "; }";
  };
  const std::string requeue = "scontrol requeue 7\n", cancel = "scancel 7\n";
  struct Row {
    const char* what;
    std::string then, requeue, scancel, acts;
    std::vector<int> pauses;
  };
  for (const Row& row : std::initializer_list<Row>{
           {"at once", "", "", "", requeue, {0}},
           {"at the second attempt", "", at("2"), "", requeue + requeue, {0, 30}},
           {"at the third attempt", "", at("3"), "", requeue + requeue + requeue, {0, 30, 30}},
           {"never", "", fail, "", requeue + requeue + requeue + cancel, {0, 30, 30, 30}},
           {"by another agent", over, fail, "", requeue + requeue, {0, 30, 30}},
           {"never, and scancel at the second attempt",
            "",
            fail,
            at("2"),
            requeue + requeue + requeue + cancel + cancel,
            {0, 30, 30, 30, 30}},
       }) {
    SCOPED_TRACE(row.what);
    for (const char* name : {"calls", "asked", "tried", "out"}) write(name, "");
    stand_in_for_scontrol(row.then, row.requeue, "Requeue=1 Restarts=3");
    stand_in("scancel", row.scancel);
    act_as_agent();
    EXPECT_EQ(acts(), row.acts);
    EXPECT_EQ(pauses(), row.pauses);
    std::vector<std::string> told = {"the job 7 is put back into the queue\n"};
    if (row.pauses.size() > 1)
      told.emplace_back(
          "scontrol requeue 7 has failed (slurm_requeue error: Unable to contact slurm controller); "
          "Slurm is asked again in 30 s\n");
    if (row.acts.find(cancel) != std::string::npos)
      told.emplace_back("the job 7 is cancelled, because it could not be put back into the queue in 3 attempts\n");
    if (!row.scancel.empty()) told.emplace_back("scancel 7 has failed (");
    for (const std::string& each : told) EXPECT_EQ(missing_from(text_of("out"), {each}), "");
  }
}

TEST_F(LostScripts, are_asked_for_as_long_as_slurm_needs_and_as_long_again_after_it_has_refused) {
  // Slurm gives no answer: 300 s of SlurmdTimeout, and 120 s more.
  stand_in_for_scontrol("slurm_load_jobs error: Unable to contact slurm controller\n", "exit 1",
                        "Requeue=1 Restarts=3");
  write("asked", "\n\n");
  act_as_agent();
  EXPECT_EQ(acts(), "");
  auto spent = pauses();
  EXPECT_EQ(std::accumulate(spent.begin(), spent.end(), 0), 420);
  write("asked", "\n");
  act_as_agent();
  EXPECT_EQ(acts(), "scontrol requeue 7\n");
  spent = pauses();
  EXPECT_EQ(std::accumulate(spent.begin(), spent.end(), 0), 420);
}

TEST_F(LostScripts, are_cancelled_if_the_job_does_not_allow_another_start) {
  stand_in_for_scontrol("", "", "Requeue=0 Restarts=0");
  act_as_agent();
  stand_in_for_scontrol("", "", "Requeue=1 Restarts=3");
  environment_.set("HOROVOD_MAX_REQUEUES", "3");
  act_as_agent();
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
  act_as_agent();
  EXPECT_EQ(text_of("calls"), "scontrol show config\nscontrol -o show job 7_3\nscontrol requeue 7_3\n");
}

TEST_F(LostScripts, of_a_job_that_a_task_of_an_array_has_submitted_are_its_own) {
  environment_.set("SLURM_ARRAY_JOB_ID", "5");  // sbatch hands the variables of the task on
  environment_.set("SLURM_ARRAY_TASK_ID", "3");
  stand_in_for_scontrol("", "", "Requeue=1 Restarts=3");
  act_as_agent();
  EXPECT_EQ(text_of("calls"), "scontrol show config\nscontrol -o show job 7\nscontrol requeue 7\n");
}

}  // namespace
}  // namespace hvd::launcher
