#include "launcher/agent/lost_script.hpp"

#include <algorithm>
#include <fstream>
#include <optional>

#include "base/counted.hpp"
#include "base/settings/config.hpp"
#include "base/text/number.hpp"
#include "native/posix/processes/ask_program.hpp"
#include "schedulers/slurm/batch_script.hpp"

namespace hvd::launcher {
namespace {

using schedulers::BatchScript;
using std::chrono::seconds;

constexpr seconds time_to_answer{20}, time_to_act{60}, time_between_turns{10};
constexpr seconds time_of_first_turns{300}, time_between_late_turns{1}, pause_of_late_turns{300};
// slurmctld refuses what it would do a little later, for example while it begins anew.
constexpr seconds time_between_tries{30};
constexpr int most_tries = 3;
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
      posix::answer_of(schedulers::question_about_job(job), time_to_answer, /*also_errors=*/false));
}

// Returns what went wrong; nullopt if all is well.
std::optional<std::string> failure_of(const std::string& command) {
  std::string text = posix::answer_of({"/bin/sh", "-c", command + " </dev/null && echo done"}, time_to_act);
  if (text.ends_with("done\n")) return std::nullopt;
  text = text.substr(0, text.find('\n'));
  return command + " has failed" + (text.empty() ? "" : " (" + text + ")");
}

void report(const BatchScript& script, const std::string& what) {
  if (std::ofstream output(script.output, std::ios::app | std::ios::in); output)
    output << "horovodrun: the node " + script.host + " is lost, and with it the job's script and horovodrun: " + what
           << std::endl;
}

// Why the job is cancelled, and not put back into the queue; nullopt if it is put back.
std::optional<std::string> why_to_cancel(const BatchScript& script, int restarts_allowed, int refusals) {
  if (!script.may_requeue) return "it does not allow to be put back into the queue";
  if (script.restarts >= restarts_allowed)
    return "it has been put back into the queue " + counted(script.restarts, "time") +
           ", and --max-requeues (HOROVOD_MAX_REQUEUES) allows " + std::to_string(restarts_allowed);
  if (refusals >= most_tries) return "it could not be put back into the queue in " + counted(refusals, "attempt");
  return std::nullopt;
}

// Tells each act before it, because Slurm ends this process with the job.
class StandIn {
 public:
  StandIn(std::string job, int restarts_allowed) : job_(std::move(job)), restarts_allowed_(restarts_allowed) {}

  // Returns false if Slurm has refused it. The job may be in the queue nevertheless: another agent has put it back, or
  // Slurm has, but has not answered in time.
  bool end_job(const BatchScript& script) {
    const auto why = why_to_cancel(script, restarts_allowed_, refusals_);
    if (why) report(script, "the job " + job_ + " is cancelled, because " + *why);
    else if (refusals_ == 0) report(script, "the job " + job_ + " is put back into the queue");
    const auto failure = failure_of((why ? "scancel " : "scontrol requeue ") + job_);
    if (!failure) return true;
    if (!why) ++refusals_;
    report(script, *failure + "; Slurm is asked again in " + std::to_string(time_between_tries.count()) + " s");
    return false;
  }

 private:
  std::string job_;
  int restarts_allowed_, refusals_ = 0;
};

}  // namespace

Turn turn_of_agent(int place, int nodes) {
  const int stride = (nodes + most_turns - 1) / most_turns;
  const int each = (nodes - 1) / stride;  // so many ask first; the first node is the script's
  if (place % stride == 0) return {place / stride * time_between_turns, std::max(1, each) * time_between_turns};
  const int late = (place % stride - 1) * (each + 1) + place / stride;
  return {time_of_first_turns + late * time_between_late_turns, pause_of_late_turns};
}

void stand_in_for_lost_script(const Environment& environment, const Pace& pace) {
  const std::string job = schedulers::batch_job_of_slurm(environment);
  if (job.empty()) return;
  const auto [place, nodes] = schedulers::place_of_slurm_node(environment);
  const Turn turn = turn_of_agent(place, nodes);
  pace.pause(turn.wait);
  const seconds patience = time_for_slurm();
  Clock::time_point limit = pace.now() + patience;
  const auto allowed = number_of(environment, "HOROVOD_MAX_REQUEUES", most_restarts);
  StandIn stand_in(job, allowed ? static_cast<int>(*allowed) : most_restarts);
  for (bool acts = false;;) {
    // Slurm has told once that the node is lost: it has as much time again to do something about it.
    const BatchScript script = script_of(job);
    if (script.fate == BatchScript::Fate::over) return;
    const bool is_lost = script.fate == BatchScript::Fate::lost;
    if (is_lost && stand_in.end_job(script)) return;
    if (is_lost && !acts) limit = pace.now() + patience;
    acts = acts || is_lost;
    if (pace.now() >= limit) return;
    pace.pause(acts ? time_between_tries : turn.pause);
  }
}

}  // namespace hvd::launcher
