#include "schedulers/slurm/step.hpp"

#include <algorithm>

namespace hvd::schedulers {

bool is_in_slurm_step(const Environment& environment) {
  return environment.has("SLURM_STEP_ID");
}

bool has_terminal_of_slurm_step(const Environment& environment) {
  return environment.has("SLURM_PTY_PORT") && environment.number("SLURM_PROCID") == 0;
}

bool is_on_slurm_node(const Environment& environment) {
  return environment.has("SLURMD_NODENAME");
}

std::vector<std::string> variables_of_slurm_step(const Environment& environment) {
  constexpr std::string_view prefixes[] = {"SLURM_CPU_BIND",     "SLURM_MEM_BIND",       "SLURM_GPU_BIND",
                                           "SLURM_NTASKS_PER_",  "SLURM_TASKS_PER_NODE", "SLURM_STEP_",
                                           "SLURM_DISTRIBUTION", "SLURM_MPI_TYPE",       "SLURM_PTY_"};
  // "PACK" is the older name of "HET"; Slurm sets both.
  constexpr std::string_view of_components[] = {"SLURM_HET_SIZE", "SLURM_PACK_SIZE", "_HET_GROUP_", "_PACK_GROUP_"};
  const bool is_in_step = is_in_slurm_step(environment),
             has_components = heterogeneous_job_around(environment).has_value();
  std::vector<std::string> names;
  for (const auto& [name, value] : environment.variables()) {
    const std::string_view text = name;
    auto is_prefix = [&](std::string_view prefix) { return text.starts_with(prefix); };
    auto is_part = [&](std::string_view part) { return text.find(part) != text.npos; };
    if ((is_in_step && text != "SLURM_STEP_ID" && std::ranges::any_of(prefixes, is_prefix)) ||
        (!has_components && text.starts_with("SLURM_") && std::ranges::any_of(of_components, is_part)))
      names.push_back(name);
  }
  return names;
}

std::vector<std::string> variables_of_slurm_resources() {
  return {"SLURM_MEM_PER_NODE",  "SLURM_MEM_PER_CPU",   "SLURM_MEM_PER_GPU",     "SLURM_GPUS",
          "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET", "SLURM_GPU_BIND",
          "SLURM_CPUS_PER_TASK", "SLURM_CPUS_PER_GPU",  "SLURM_OVERLAP",         "SLURM_EXCLUSIVE",
          "SLURM_TRES_PER_TASK", "SRUN_CPUS_PER_TASK",  "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_GPU",
          "SLURM_EXACT"};
}

std::vector<std::string> variables_of_slurm_export() {
  return {"SLURM_EXPORT_ENV", "SRUN_EXPORT_ENV"};
}

std::string source_of_room(const Environment& environment, const SlurmComponent& component) {
  std::string text;
  for (const char* name : {"SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_PER_TASK"})
    if (auto value = environment.get(name + component.suffix))
      text += (text.empty() ? "" : ", ") + (name + component.suffix) + "=" + *value;
  return text;
}

}  // namespace hvd::schedulers
