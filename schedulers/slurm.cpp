// Slurm tells everything in variables. In a heterogeneous job they have a suffix for each of its parts.
#include <algorithm>
#include <numeric>

#include "base/counted.hpp"
#include "base/text/number.hpp"
#include "schedulers/grammar/comparison.hpp"
#include "schedulers/grammar/durations.hpp"
#include "schedulers/grammar/host_lists.hpp"
#include "schedulers/scheduler.hpp"
#include "schedulers/slurm/batch_script.hpp"
#include "schedulers/slurm/components.hpp"

namespace hvd::schedulers {
namespace {

// Reads "4", "a100:4" or "a100:2,v100:2"; returns nullopt for any other text.
std::optional<int> sum_of_gpus(std::string_view text) {
  int sum = 0;
  while (!text.empty()) {
    std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    item.remove_prefix(item.find(':') == std::string_view::npos ? 0 : item.find(':') + 1);
    auto number = number_in<int>(item);
    if (!number || *number < 0 || *number > most_slots) return std::nullopt;
    sum += *number;
  }
  return sum;
}

// Returns one number for each node from the variable `name`; empty if it is not set.
Result<std::vector<int>> numbers_of_nodes(const Environment& environment, const std::string& name, std::size_t nodes,
                                          const std::string& list) {
  auto text = environment.get(name);
  if (!text || text->empty()) return std::vector<int>();
  auto numbers = numbers_per_node(*text);
  if (!numbers) return in(name, std::move(numbers.error()));
  if (numbers->size() != nodes)
    return Error(ErrorCode::invalid_argument, name + "=" + *text + " has " + std::to_string(numbers->size()) +
                                                  " numbers, but " + list + " names " + std::to_string(nodes) +
                                                  " nodes");
  return numbers;
}

// Adds the hosts of one part of the job. The variables of the part end with `suffix`.
Status add_part(Allocation& found, const Environment& environment, int part, const std::string& suffix) {
  std::string list = "SLURM_JOB_NODELIST" + suffix;
  auto names = expand_hosts(environment.get(list).value_or(""));
  if (!names) return in(list + "=" + environment.get(list).value_or(""), std::move(names.error()));
  auto cores = numbers_of_nodes(environment, "SLURM_JOB_CPUS_PER_NODE" + suffix, names->size(), list);
  if (!cores) return std::move(cores.error());
  // Inside a step SLURM_NTASKS describes the step. The variables of parts describe the job.
  bool tells_tasks = !suffix.empty() || !environment.has("SLURM_STEP_ID");
  Result<std::vector<int>> tasks = std::vector<int>();
  if (tells_tasks) tasks = numbers_of_nodes(environment, "SLURM_TASKS_PER_NODE" + suffix, names->size(), list);
  if (!tasks) return std::move(tasks.error());
  const int nodes = static_cast<int>(names->size()), sum = std::accumulate(tasks->begin(), tasks->end(), 0);
  compare_number(found, environment, "SLURM_JOB_NUM_NODES" + suffix, nodes, list + " has " + counted(nodes, "host"));
  if (!tasks->empty())
    compare_number(found, environment, "SLURM_NTASKS" + suffix, sum,
                   "SLURM_TASKS_PER_NODE" + suffix + " has " + counted(sum, "task"));
  int cores_per_rank = std::max(1, environment.number("SLURM_CPUS_PER_TASK" + suffix).value_or(1));
  auto gpus = sum_of_gpus(environment.get("SLURM_GPUS_PER_NODE" + suffix).value_or("?"));
  if (!gpus && names->size() == 1 && suffix.empty()) gpus = environment.number("SLURM_GPUS_ON_NODE");
  for (std::size_t at = 0; at < names->size(); ++at) {
    Host host{std::move((*names)[at])};
    host.part = part;
    host.gpus = gpus.value_or(-1);
    if (!cores->empty()) host.cores = (*cores)[at] / cores_per_rank;
    host.slots = tasks->empty() ? std::max(1, host.cores) : (*tasks)[at];
    found.hosts.push_back(std::move(host));
  }
  return {};
}

class Slurm final : public Scheduler {
 public:
  Slurm()
      : Scheduler({.name = "Slurm",
                   .job_variable = "SLURM_JOB_ID",
                   .prefixes = {"SLURM_", "SLURMD_"},
                   .place = Place::before_equals,
                   .output_files = {"slurm-*.out", "*-[0-9]*[0-9].out"},
                   .remote_starter = {{"srun"}, Messages::by_srun_line}}) {}

  std::string job(const Sources& sources) const override { return job_of_slurm(sources.environment); }

  Result<Allocation> allocation(const Sources& sources) const override {
    Allocation found;
    found.job = job(sources);
    found.source = "SLURM_JOB_NODELIST";
    int part = 0;
    for (const SlurmComponent& component : components_of_job(sources.environment))
      HVD_RETURN_IF_ERROR(add_part(found, sources.environment, part++, component.suffix));
    return found;
  }

  std::optional<std::chrono::seconds> time_left(const Sources& sources) const override {
    auto end = number_in<std::int64_t>(sources.environment.get("SLURM_JOB_END_TIME").value_or(""));
    if (end && *end > 0 && !sources.asks_anew)
      return std::chrono::seconds(std::max<std::int64_t>(0, *end - sources.now_s));
    // For the number of a heterogeneous job squeue tells about all its components, the first one first.
    const std::string own = own_job_of_slurm(sources.environment);
    std::string text = sources.ask({"squeue", "--noheader", "--jobs", own, "--format", "%L"});
    return duration_in(std::string_view(text).substr(0, text.find('\n')));
  }

  Requeue requeue(const Sources& sources) const override {
    return {{"scontrol", "requeue", own_job_of_slurm(sources.environment)}};
  }

  // The variable is set only in a job that was requeued. Another job may have it from the job that submitted it.
  std::optional<int> times_requeued(const Sources& sources) const override {
    const std::string shown = sources.ask(question_about_job(own_job_of_slurm(sources.environment)));
    const int inherited_or_own = sources.environment.number("SLURM_RESTART_COUNT").value_or(0);
    return restarts_of(shown).value_or(inherited_or_own);
  }

  std::string how_to_ask_for(int slots) const override { return "sbatch -n " + std::to_string(slots); }
};

}  // namespace

std::unique_ptr<Scheduler> make_slurm() {
  return std::make_unique<Slurm>();
}

}  // namespace hvd::schedulers
