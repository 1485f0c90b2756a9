#include "schedulers/slurm/components.hpp"

#include <string.h>

#include <algorithm>
#include <utility>

#include "base/text/number.hpp"
#include "schedulers/grammar/host_lists.hpp"

namespace hvd::schedulers {
namespace {

constexpr int most_components = 128;  // Slurm allows no more components in a job

std::optional<std::int64_t> job_in(const Environment& environment, const std::string& name) {
  return number_in<std::uint32_t>(environment.get(name).value_or(""));
}

SlurmComponent component_of(const Environment& environment, const std::string& suffix) {
  auto number = [&](const char* name) { return environment.number(name + suffix).value_or(0); };
  SlurmComponent component;
  component.suffix = suffix;
  component.nodes = number("SLURM_JOB_NUM_NODES");
  component.cpus_per_rank = number("SLURM_CPUS_PER_TASK");
  // Inside a step SLURM_NTASKS describes the step. The variables of components describe the job.
  if (!suffix.empty() || !environment.has("SLURM_STEP_ID")) component.tasks = number("SLURM_NTASKS");
  if (auto cores = numbers_per_node(environment.get("SLURM_JOB_CPUS_PER_NODE" + suffix).value_or("")))
    for (int on_node : *cores) component.room += on_node / std::max(1, component.cpus_per_rank);
  if (auto hosts = expand_hosts(environment.get("SLURM_JOB_NODELIST" + suffix).value_or("")))
    component.hosts = std::move(*hosts);
  // Slurm's number of tasks may be larger than this, if Slurm lets ranks share processors.
  component.room = std::max(component.room, component.tasks);
  return component;
}

}  // namespace

std::optional<HeterogeneousJob> heterogeneous_job_around(const Environment& environment) {
  HeterogeneousJob job{job_in(environment, "SLURM_JOB_ID_HET_GROUP_0"), 0};
  if (!job.number) job.number = job_in(environment, "SLURM_HET_JOB_ID");
  if (auto size = environment.number("SLURM_HET_SIZE")) job.components = std::min(*size, most_components);
  else
    while (job.components < most_components &&
           environment.has("SLURM_JOB_ID_HET_GROUP_" + std::to_string(job.components)))
      ++job.components;
  if (job.components == 0) return std::nullopt;
  auto own = job_in(environment, "SLURM_JOB_ID");
  bool is_inherited = job.number && own && (*own < *job.number || *own >= *job.number + job.components);
  return is_inherited ? std::nullopt : std::optional(job);
}

std::vector<SlurmComponent> components_of_job(const Environment& environment) {
  std::vector<SlurmComponent> components;
  auto whole = heterogeneous_job_around(environment);
  int count = whole ? whole->components : 0;
  components.reserve(static_cast<std::size_t>(std::max(count, 1)));
  for (int at = 0; at < count; ++at)
    components.push_back(component_of(environment, "_HET_GROUP_" + std::to_string(at)));
  if (components.empty()) components.push_back(component_of(environment, ""));
  return components;
}

void share_out(std::vector<SlurmComponent>& components, int ranks) {
  auto give = [&](SlurmComponent& component, int most) {
    int given = std::clamp(most, 0, ranks);
    component.ranks += given;
    ranks -= given;
  };
  for (SlurmComponent& component : components) give(component, component.tasks);
  for (SlurmComponent& component : components) give(component, component.room - component.ranks);
  while (ranks > 0)
    for (SlurmComponent& component : components) give(component, std::max(component.room, 1));
}

std::string out_of_order(const std::vector<SlurmComponent>& components) {
  auto has_ranks = [](const SlurmComponent& component) { return component.ranks > 0; };
  if (std::ranges::count_if(components, has_ranks) < 2) return "";
  const std::string* last = nullptr;
  for (const SlurmComponent& component : components) {
    if (!has_ranks(component)) continue;
    for (const std::string& host : component.hosts) {
      if (last != nullptr && ::strverscmp(last->c_str(), host.c_str()) > 0) return *last + ", " + host;
      last = &host;
    }
  }
  return "";
}

}  // namespace hvd::schedulers
