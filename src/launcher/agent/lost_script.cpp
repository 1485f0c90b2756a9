#include "launcher/agent/lost_script.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "base/deadline.hpp"
#include "base/text/number.hpp"
#include "native/posix/processes/ask_program.hpp"
#include "schedulers/slurm/batch_script.hpp"

namespace hvd::launcher {
namespace {

using schedulers::BatchScript;
using std::chrono::seconds;

constexpr seconds time_to_answer{20}, time_between_questions{10};
constexpr int most_restarts = 20;  // of --max-requeues in job scripts
// The agents of a job ask one after the other, in the order of their nodes, so that seldom more than one asks.
constexpr int most_turns = 30;

// How long Slurm waits for a node that does not answer, and some more.
seconds time_for_slurm() {
  const std::string shown = posix::answer_of({"scontrol", "show", "config"}, time_to_answer, /*also_errors=*/false);
  std::size_t at = shown.find("SlurmdTimeout");
  if (at != std::string::npos) at = shown.find_first_of("0123456789", at);
  const auto limit = at == std::string::npos
                         ? std::nullopt
                         : number_in<int>(shown.substr(at, shown.find_first_not_of("0123456789", at) - at));
  return seconds(limit.value_or(600) + 120);
}

bool run(const std::string& command) {
  return posix::answer_of({"/bin/sh", "-c", command + " </dev/null && echo done"}, seconds(60)).ends_with("done\n");
}

void end_job(const BatchScript& script, const std::string& job, int restarts_allowed) {
  std::string end = "the job " + job + " is cancelled, because it does not allow to be put back into the queue";
  const bool may_requeue = script.may_requeue && script.restarts < restarts_allowed;
  if (may_requeue) end = "the job " + job + " is put back into the queue";
  if (std::ofstream output(script.output, std::ios::app | std::ios::in); output)
    output << "horovodrun: the node " + script.host + " is lost, and with it the job's script and horovodrun: " + end
           << std::endl;
  if (!may_requeue || !run("scontrol requeue " + job)) (void)run("scancel " + job);
}

}  // namespace

void stand_in_for_lost_script(const Environment& environment) {
  const std::string job = schedulers::batch_job_of_slurm(environment);
  if (job.empty()) return;
  const Deadline limit = Deadline::after(time_for_slurm());
  const int turn = std::min(most_turns, schedulers::place_of_slurm_node(environment));
  std::this_thread::sleep_for(turn * time_between_questions);
  while (!limit.passed()) {
    const BatchScript script = schedulers::batch_script_of(
        posix::answer_of({"scontrol", "-o", "show", "job", job}, time_to_answer, /*also_errors=*/false));
    if (script.fate == BatchScript::Fate::over) return;
    if (script.fate == BatchScript::Fate::lost)
      return end_job(script, job, environment.number("HOROVOD_MAX_REQUEUES").value_or(most_restarts));
    std::this_thread::sleep_for(time_between_questions);
  }
}

}  // namespace hvd::launcher
