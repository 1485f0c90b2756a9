#include "launcher/targets/explain.hpp"

#include <algorithm>

#include "base/comma_list.hpp"
#include "base/config.hpp"
#include "bootstrap/launch/launch.hpp"
#include "launcher/targets/slurm_components.hpp"
#include "native/posix/host_identity.hpp"
#include "native/posix/plugin.hpp"

namespace hvd::launcher {
namespace {

std::string row(const char* name, const std::string& text) {
  constexpr std::size_t width = 12;
  std::string line = name;
  return line + std::string(width - line.size(), ' ') + text + "\n";
}

std::string more(const std::string& text) {
  return row("", text);
}

std::string scheduler(const Environment& environment) {
  auto value = [&](const std::string& name) { return environment.get(name).value_or(""); };
  if (environment.has("SLURM_JOB_ID")) {
    std::string text = "Slurm, job " + value("SLURM_JOB_ID");
    for (const SlurmComponent& component : components_of_job(environment))
      if (environment.has("SLURM_JOB_NODELIST" + component.suffix))
        text += ", nodes " + value("SLURM_JOB_NODELIST" + component.suffix) + " with " +
                value("SLURM_JOB_CPUS_PER_NODE" + component.suffix) + " processors";
    return text + (environment.has("SLURM_STEP_ID") ? "; inside of step " + value("SLURM_STEP_ID") : "");
  }
  if (environment.has("LSB_JOBID")) return "LSF, job " + value("LSB_JOBID") + " (not driven by this version)";
  if (environment.has("PBS_JOBID"))
    return "PBS, job " + value("PBS_JOBID") + " (not driven by this version: name hosts, -H)";
  return "none: neither SLURM_JOB_ID nor LSB_JOBID nor PBS_JOBID is set";
}

std::string launcher(const ChosenTarget& chosen, const JobOptions& plan, int ranks) {
  std::string text;
  if (plan.site) {
    return row("launcher", joined(plan.site->command, " ")) + more("since " + chosen.why);
  }
  text = row("launcher",
             std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") + " below agents of ours, since " + chosen.why);
  for (std::size_t at = 0; at < plan.hosts.size(); ++at) {
    const HostPlan& host = plan.hosts[at];
    auto here = std::count_if(plan.placements.begin(), plan.placements.end(),
                              [&](const Placement& placement) { return placement.host_index == at; });
    text += more(host.name + ", " + std::to_string(here) + (here == 1 ? " rank: " : " ranks: ") +
                 (host.reach.empty() ? "this machine" : joined(host.reach, " ")));
  }
  return text;
}

bool is_on_one_node(const JobOptions& plan) {
  return !plan.site && plan.hosts.size() == 1;
}

std::string transport(const Config& config, const JobOptions& plan, const Environment& environment) {
  std::string inside = "inside a node shm, memory that its ranks share";
  std::string plugins;
  for (const char* plugin : {"mpi-mpich", "mpi-openmpi", "mpi-abi"})
    if (!posix::plugin_path(plugin, environment).empty())
      plugins += (plugins.empty() ? "" : ", ") + std::string(plugin);
  std::string tcp = "tcp, over " + (config.network_interfaces.empty() ? std::string("all interfaces that are up")
                                                                      : config.network_interfaces);
  if (config.port_range.first > 0)
    tcp += ", ports " + std::to_string(config.port_range.first) + "-" + std::to_string(config.port_range.last);
  bool wants_no_mpi = config.mpi == "none" || (config.mpi.empty() && config.cpu_operations == "gloo");
  if (is_on_one_node(plan) && config.mpi.empty()) return row("transport", inside + "; there is only one");
  if (is_on_one_node(plan) && config.mpi == "none") return row("transport", inside + "; there is only one");
  std::string text = row("transport", inside + ";");
  if (wants_no_mpi)
    return text + more("between nodes " + tcp + ", since " +
                       (config.mpi == "none" ? "HOROVOD_MPI=none" : "HOROVOD_CPU_OPERATIONS=gloo"));
  if (plugins.empty()) return text + more("between nodes " + tcp + ", since no MPI plugin is installed");
  return text +
         more("between nodes mpi" + (config.mpi.empty() ? "" : " (HOROVOD_MPI=" + config.mpi + ")") +
              ", where all ranks can start the same MPI (plugins: " + plugins + "),") +
         more(config.mpi.empty() ? "else " + tcp : "else the start fails");
}

std::string algorithm(const Config& config, const JobOptions& plan, int ranks) {
  std::string by_cost = ranks == 1 ? "alone: there is nobody to talk to"
                        : is_on_one_node(plan)
                            ? "native, the node's own collectives in shared memory, in the order of the ranks"
                            : "hierarchical where a node has several ranks (shm inside, a rail of each local rank "
                              "between), else tree and "
                              "halving_doubling by size";
  std::string text = row("algorithm", by_cost);
  if (!config.algorithm.empty())
    text += more("but HOROVOD_ALGORITHM=" + config.algorithm + " comes first where it is possible");
  return text;
}

}  // namespace

Result<std::string> explain(const Request& request) {
  Environment environment = request.environment;
  for (const auto& [name, value] : variables_of(request.flags)) environment.set(name, value);
  std::vector<std::string> warnings;
  auto config = Config::from(environment, warnings);
  if (!config) return std::move(config.error());
  auto chosen = choose_target(request);
  if (!chosen) return std::move(chosen.error());
  auto plan = chosen->target->plan(request);
  if (!plan) return std::move(plan.error());

  std::string text = row("here", posix::host_name());
  if (auto launch = bootstrap::innermost_launch(request.environment);
      launch && launch->size > 1 && chosen->target != &slurm_target)
    text += more("one of " + std::to_string(launch->size) + " processes that " + launch->name + " started (" +
                 launch->evidence + "): each would start a job of its own");
  text += row("scheduler", scheduler(request.environment)) + launcher(*chosen, *plan, request.ranks);
  text += row("bootstrap", config->bootstrap.empty() ? chosen->target->bootstrap(*plan, environment)
                                                     : config->bootstrap + ", forced by HOROVOD_BOOTSTRAP");
  text += transport(*config, *plan, environment) + algorithm(*config, *plan, request.ranks);
  for (const std::string& warning : warnings) text += row("note", warning);
  return text;
}

}  // namespace hvd::launcher
