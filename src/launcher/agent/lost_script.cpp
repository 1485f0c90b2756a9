#include "launcher/agent/lost_script.hpp"

#include <algorithm>
#include <fstream>
#include <thread>

#include "base/counted.hpp"
#include "base/deadline.hpp"
#include "base/text/number.hpp"
#include "native/posix/processes/ask_program.hpp"
#include "schedulers/slurm/batch_script.hpp"

namespace hvd::launcher {
namespace {

using schedulers::BatchScript;
using std::chrono::seconds;

constexpr seconds time_to_answer{20}, time_between_turns{10};
constexpr int most_restarts = 20;  // of --max-requeues in job scripts
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

BatchScript script_of(const std::string& job) {
  return schedulers::batch_script_of(
      posix::answer_of({"scontrol", "-o", "show", "job", job}, time_to_answer, /*also_errors=*/false));
}

bool run(const std::string& command) {
  return posix::answer_of({"/bin/sh", "-c", command + " </dev/null && echo done"}, seconds(60)).ends_with("done\n");
}

void tell(const BatchScript& script, const std::string& end) {
  if (std::ofstream output(script.output, std::ios::app | std::ios::in); output)
    output << "horovodrun: the node " + script.host + " is lost, and with it the job's script and horovodrun: " + end
           << std::endl;
}

// Tells it before, because Slurm ends this process with the job.
void cancel(const BatchScript& script, const std::string& job, const std::string& why) {
  tell(script, "the job " + job + " is cancelled, because " + why);
  (void)run("scancel " + job);
}

// Returns false if the job could not be put back into the queue. It may be there nevertheless: another agent has put it
// back, or Slurm has, but has not answered in time.
bool end_job(const BatchScript& script, const std::string& job, int restarts_allowed) {
  if (!script.may_requeue) {
    cancel(script, job, "it does not allow to be put back into the queue");
  } else if (script.restarts >= restarts_allowed) {
    cancel(script, job,
           "it has been put back into the queue " + counted(script.restarts, "time") +
               ", and --max-requeues (HOROVOD_MAX_REQUEUES) allows " + std::to_string(restarts_allowed));
  } else {
    tell(script, "the job " + job + " is put back into the queue");
    return run("scontrol requeue " + job);
  }
  return true;
}

}  // namespace

std::optional<Turn> turn_of_agent(int place, int nodes) {
  const int stride = (nodes + most_turns - 1) / most_turns;
  if (place % stride != 0) return std::nullopt;
  const int agents = (nodes - 1) / stride;  // of those that ask; the first node is the script's
  return Turn{place / stride * time_between_turns, std::max(1, agents) * time_between_turns};
}

void stand_in_for_lost_script(const Environment& environment) {
  const std::string job = schedulers::batch_job_of_slurm(environment);
  if (job.empty()) return;
  const auto [place, nodes] = schedulers::place_of_slurm_node(environment);
  const auto turn = turn_of_agent(place, nodes);
  if (!turn) return;
  std::this_thread::sleep_for(turn->wait);
  const Deadline limit = Deadline::after(time_for_slurm());
  const int restarts_allowed = environment.number("HOROVOD_MAX_REQUEUES").value_or(most_restarts);
  for (bool was_refused = false;;) {
    const BatchScript script = script_of(job);
    if (script.fate == BatchScript::Fate::over) return;
    if (script.fate == BatchScript::Fate::unknown) {
      if (limit.passed()) return;
      std::this_thread::sleep_for(turn->pause);
      continue;
    }
    if (was_refused) return cancel(script, job, "it could not be put back into the queue");
    if (end_job(script, job, restarts_allowed)) return;
    was_refused = true;  // a job that is back in the queue has no fate `lost`
  }
}

}  // namespace hvd::launcher
