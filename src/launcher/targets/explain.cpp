#include "launcher/targets/explain.hpp"

#include <algorithm>

#include "base/comma_list.hpp"
#include "base/config.hpp"
#include "bootstrap/launch/launch.hpp"
#include "launcher/options/mpi_plugins.hpp"
#include "native/posix/host_identity.hpp"

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

// "1:02:03"
std::string clock_text(std::chrono::seconds span) {
  auto two_digits = [](std::int64_t number) { return (number < 10 ? "0" : "") + std::to_string(number); };
  std::int64_t seconds = span.count();
  return std::to_string(seconds / 3600) + ":" + two_digits(seconds / 60 % 60) + ":" + two_digits(seconds % 60);
}

std::string scheduler(const JobAround& around) {
  if (!around.is_a_job()) return row("scheduler", "none: " + around.evidence());
  const auto& found = around.allocation();
  std::string text = row("scheduler", std::string(around.scheduler().name()) + (found ? ", job " + found->job : "") +
                                          ", since " + around.evidence());
  text +=
      more((found ? "" : "its hosts are not known: ") + around.description() + (found ? ", by " + found->source : ""));
  if (found && !found->launch_host.empty()) text += more("no rank goes to the launch node " + found->launch_host);
  if (auto left = around.time_left()) text += more("it ends in " + clock_text(*left) + " at the latest");
  schedulers::Requeue requeue = around.requeue();
  if (!requeue.command.empty()) text += more("put back into the queue by `" + joined(requeue.command, " ") + "`");
  if (requeue.exit_code != 0) text += more("put back into the queue by exit code " + std::to_string(requeue.exit_code));
  return text;
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
  const MpiWish wish = mpi_wish(config);
  std::string inside = "inside a node shm, memory that its ranks share";
  if (is_on_one_node(plan) && wish.when != MpiWish::When::always)
    return row("transport", inside + "; there is only one");
  std::string plugins;
  for (const MpiPlugin& plugin : mpi_plugins())
    if (is_installed(plugin, environment)) plugins += (plugins.empty() ? "" : ", ") + std::string(plugin.file);
  std::string tcp = "tcp, over " + (config.network_interfaces.empty() ? std::string("all interfaces that are up")
                                                                      : config.network_interfaces);
  if (config.port_range.first > 0)
    tcp += ", ports " + std::to_string(config.port_range.first) + "-" + std::to_string(config.port_range.last);
  std::string text = row("transport", inside + ";");
  if (wish.when == MpiWish::When::never) return text + more("between nodes " + tcp + ", since " + wish.why);
  if (plugins.empty()) return text + more("between nodes " + tcp + ", since no MPI plugin is installed");
  bool is_forced = wish.when == MpiWish::When::always;
  return text +
         more("between nodes mpi" + (is_forced ? " (" + wish.why + ")" : std::string()) +
              ", where all ranks can start the same MPI (plugins: " + plugins + "),") +
         more(is_forced ? "else the start fails" : "else " + tcp);
}

// Only the job itself knows what its ranks can do over the links that they have.
std::string algorithm(const Config& config) {
  if (config.algorithm.empty()) return row("algorithm", "by cost, for each operation and its size");
  return row("algorithm", "HOROVOD_ALGORITHM=" + config.algorithm + " where it is possible, else by cost");
}

std::string bootstrap(const Config& config, const ChosenTarget& chosen, const JobOptions& plan,
                      const Environment& environment) {
  if (!config.bootstrap.empty()) return row("bootstrap", config.bootstrap + ", forced by HOROVOD_BOOTSTRAP");
  WayToMeet way = chosen.target->way(plan, environment);
  return row("bootstrap", way.bootstrap + ": " + way.why) +
         (way.why_no_pmix.empty() ? "" : more("not pmix: " + way.why_no_pmix));
}

}  // namespace

Result<std::string> explain(const JobRequest& request) {
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
  if (auto launch = hvd::bootstrap::innermost_launch(request.environment);
      launch && launch->size > 1 && chosen->target != &slurm_target)
    text += more("one of " + std::to_string(launch->size) + " processes that " + launch->name + " started (" +
                 launch->evidence + "): each would start a job of its own");
  text += scheduler(request.around) + launcher(*chosen, *plan, request.ranks);
  text += bootstrap(*config, *chosen, *plan, environment);
  text += transport(*config, *plan, environment) + algorithm(*config);
  for (const std::string& warning : warnings) text += row("note", warning);
  return text;
}

}  // namespace hvd::launcher
