#include "schedulers/slurm/batch_script.hpp"

#include <algorithm>
#include <iterator>

#include "base/text/number.hpp"
#include "schedulers/grammar/host_lists.hpp"
#include "schedulers/slurm/components.hpp"

namespace hvd::schedulers {
namespace {

// True for "Power=" and what follows it.
bool begins_with_key(std::string_view text) {
  return !text.empty() && text[0] >= 'A' && text[0] <= 'Z' && text.find('=') < text.find(' ');
}

// The value after " KEY=", up to the next key: names of files may have blanks.
std::string value_of(std::string_view shown, std::string_view key) {
  const std::string begin = " " + std::string(key) + "=";
  std::size_t at = shown.find(begin);
  if (at == std::string_view::npos) return "";
  at += begin.size();
  const std::string_view value = shown.substr(at, shown.find('\n', at) - at);
  std::size_t end = value.find(' ');
  while (end < value.size() && !begins_with_key(value.substr(end + 1))) end = value.find(' ', end + 1);
  return std::string(value.substr(0, end));
}

}  // namespace

std::vector<std::string> question_about_job(const std::string& job) {
  return {"scontrol", "-o", "show", "job", job};
}

BatchScript batch_script_of(std::string_view shown) {
  BatchScript script;
  const std::string state = value_of(shown, "JobState");
  if (state.empty()) return script;
  script.may_requeue = value_of(shown, "Requeue") == "1";
  script.restarts = restarts_of(shown).value_or(0);
  script.host = value_of(shown, "BatchHost");
  script.output = value_of(shown, "StdOut");
  if (state != "RUNNING" || value_of(shown, "BatchFlag") != "1" || script.host.empty()) {
    script.fate = BatchScript::Fate::over;
    return script;
  }
  auto nodes = expand_hosts(value_of(shown, "NodeList"));
  if (nodes && std::ranges::find(*nodes, script.host) == nodes->end()) script.fate = BatchScript::Fate::lost;
  return script;
}

std::optional<int> restarts_of(std::string_view shown) {
  return number_in<int>(value_of(shown, "Restarts"));
}

bool has_job_ended(std::string_view shown) {
  constexpr std::string_view ends[] = {"BOOT_FAIL", "CANCELLED",     "COMPLETED", "COMPLETING", "DEADLINE", "FAILED",
                                       "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",    "TIMEOUT"};
  return std::ranges::find(ends, value_of(shown, "JobState")) != std::end(ends);
}

std::string job_of_slurm(const Environment& environment) {
  auto array = environment.get("SLURM_ARRAY_JOB_ID"), task = environment.get("SLURM_ARRAY_TASK_ID");
  if (array && task) return *array + "_" + *task;
  return own_job_of_slurm(environment);
}

std::string own_job_of_slurm(const Environment& environment) {
  const std::string job = environment.get("SLURM_JOB_ID").value_or("");
  // The last task of an array has the array's number. Other numbers than the job's own are of no array, or of the array
  // from whose task the job was submitted, which sbatch passes on.
  auto task = environment.get("SLURM_ARRAY_TASK_ID");
  if (task && environment.get("SLURM_ARRAY_JOB_ID") == job) return job + "_" + *task;
  auto whole = heterogeneous_job_around(environment);
  return whole && whole->number ? std::to_string(*whole->number) : job;
}

std::string batch_job_of_slurm(const Environment& environment) {
  return environment.get("ENVIRONMENT") == "BATCH" ? own_job_of_slurm(environment) : "";
}

NodePlace place_of_slurm_node(const Environment& environment) {
  auto nodes = expand_hosts(environment.get("SLURM_JOB_NODELIST").value_or(""));
  if (!nodes) return {};
  const auto found = std::ranges::find(*nodes, environment.get("SLURMD_NODENAME").value_or(""));
  if (found == nodes->end()) return {};
  return {static_cast<int>(found - nodes->begin()), static_cast<int>(nodes->size())};
}

}  // namespace hvd::schedulers
