#include "launcher/targets/explain.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/counted.hpp"
#include "base/settings/config.hpp"
#include "base/text/comma_list.hpp"
#include "base/transports.hpp"
#include "bootstrap/launch/launch.hpp"
#include "launcher/agent/container_runtime.hpp"
#include "launcher/options/image_file.hpp"
#include "launcher/options/mpi_plugins.hpp"
#include "native/posix/machine/affinity.hpp"
#include "native/posix/machine/host_identity.hpp"
#include "topology/placement_report.hpp"
#include "topology/visible_gpus.hpp"

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

// Returns a text like "1:02:03".
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
  for (const std::string& other : around.passed_over()) text += more("not " + other);
  if (found && !found->launch_host.empty()) text += more("no rank goes to the launch node " + found->launch_host);
  if (found)
    for (const std::string& contradiction : found->contradictions) text += more("contradiction: " + contradiction);
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
  text = row("launcher", counted(ranks, "rank") + " below agents of ours, since " + chosen.why);
  for (std::size_t at = 0; at < plan.hosts.size(); ++at) {
    const HostPlan& host = plan.hosts[at];
    auto here = std::count_if(plan.placements.begin(), plan.placements.end(),
                              [&](const Placement& placement) { return placement.host_index == at; });
    text += more(host.name + ", " + counted(here, "rank") + ": " +
                 (host.reach.empty() ? "this machine" : joined(host.reach, " ")));
  }
  return text;
}

bool is_on_one_node(const JobOptions& plan) {
  return !plan.site && plan.hosts.size() == 1;
}

// Whether a transport can be used, as far as this is known before there are ranks.
struct Prospect {
  enum class Says { yes, only_if, no } says = Says::yes;
  std::string why;      // the condition of only_if, or the reason of no
  std::string setting;  // a setting with which the start fails if this transport cannot be used; empty: no such setting
};

Prospect prospect_of_mpi(const Config& config, const Environment& environment) {
  using Says = Prospect::Says;
  const MpiUse use = mpi_use(config);
  if (use.when == MpiUse::When::never) return {Says::no, use.why, ""};
  std::string plugins;
  for (const MpiPlugin& plugin : mpi_plugins())
    if (is_installed(plugin, environment)) plugins += (plugins.empty() ? "" : ", ") + std::string(plugin.file);
  if (plugins.empty()) return {Says::no, "no MPI plugin is installed", use.why};
  return {Says::only_if, "where all ranks can start the same MPI (plugins: " + plugins + ")", use.why};
}

Prospect prospect_of(const TransportRow& transport, const Config& config, const Environment& environment) {
  if (transport.library == Library::none) return {};
  if (transport.library == Library::mpi) return prospect_of_mpi(config, environment);
  return {Prospect::Says::only_if, "where all ranks have its library", ""};
}

std::string medium_of(const TransportRow& transport, const Config& config) {
  if (!transport.uses_sockets()) return std::string(transport.medium);
  std::string text = std::string(transport.medium) + " over " +
                     (config.network_interfaces.empty() ? "all interfaces that are up" : config.network_interfaces);
  if (config.port_range.first > 0)
    text += ", ports " + std::to_string(config.port_range.first) + "-" + std::to_string(config.port_range.last);
  return text;
}

// Returns the transports that may carry tensors on one kind of hop, one line each, in the order of preference. The last
// line is the first transport that works without any condition.
std::vector<std::string> carriers(std::string beginning, bool TransportRow::*reaches, const Config& config,
                                  const Environment& environment) {
  using Says = Prospect::Says;
  std::vector<std::string> lines;
  std::string ruled_out;
  for (const TransportRow& transport : transports_by_preference) {
    if (!(transport.*reaches)) continue;
    Prospect prospect = prospect_of(transport, config, environment);
    std::string name(transport.name);
    if (prospect.says != Says::no) lines.push_back(beginning + name + ", " + medium_of(transport, config));
    switch (prospect.says) {
      case Says::yes: lines.back() += ruled_out; return lines;
      case Says::only_if:
        lines.back() += ", " + prospect.why + ",";
        beginning = "else ";
        break;
      case Says::no: ruled_out += "; not " + name + ": " + prospect.why; break;
    }
    if (!prospect.setting.empty()) {
      bool is_hopeless = prospect.says == Says::no;
      lines.push_back((is_hopeless ? beginning : "else ") + "the start fails, by " + prospect.setting + ruled_out);
      return lines;
    }
  }
  return lines;
}

std::string transport(const Config& config, const JobOptions& plan, const Environment& environment) {
  auto lines = carriers("inside a node: ", &TransportRow::within_node, config, environment);
  if (!is_on_one_node(plan) || mpi_use(config).when == MpiUse::When::always) {
    auto between = carriers("between nodes: ", &TransportRow::between_nodes, config, environment);
    lines.insert(lines.end(), between.begin(), between.end());
  }
  std::string text;
  for (const std::string& line : lines) text += text.empty() ? row("transport", line) : more(line);
  return text;
}

// How allreduce of tensors on GPUs gets from node to node.
std::string hierarchy(const Config& config) {
  if (config.torus_allreduce)
    return "allreduce in stages with links of GPUs along the rails, by HOROVOD_TORUS_ALLREDUCE=1, where it is possible";
  if (config.hierarchical_allreduce == "1")
    return "allreduce in stages (GPUs of a node, then the rails), by HOROVOD_HIERARCHICAL_ALLREDUCE=1, where it is "
           "possible";
  if (config.hierarchical_allreduce == "0")
    return "allreduce over all GPUs at once or through host memory, by HOROVOD_HIERARCHICAL_ALLREDUCE=0";
  return "allreduce in stages (GPUs of a node, then the rails), over all GPUs at once, or through host memory: what "
         "costs least for the size";
}

// The text does not name the algorithm of each batch, because costs depend on the links that the ranks have made.
std::string algorithm(const Config& config, bool has_several_nodes) {
  std::string text =
      config.algorithm.empty()
          ? row("algorithm", "by cost, for each operation and its size")
          : row("algorithm", "HOROVOD_ALGORITHM=" + config.algorithm + " where it is possible, else by cost");
  if (has_several_nodes) text += more("on GPUs, between nodes: " + hierarchy(config));
  if (has_several_nodes && config.hierarchical_allreduce != "0")
    text += more(std::string("size of the chunks in stages: ") +
                 (config.deterministic ? "by assumed costs, by HOROVOD_DETERMINISTIC=1"
                                       : "measured by the ranks (HOROVOD_LOG_LEVEL=info shows it on rank 0)"));
  return text + more("with HOROVOD_LOG_LEVEL=debug rank 0 prints the table of its job, with the costs and the reasons");
}

std::string bootstrap(const Config& config, const ChosenTarget& chosen, const JobOptions& plan,
                      const Environment& environment) {
  if (!config.bootstrap.empty()) return row("bootstrap", config.bootstrap + ", forced by HOROVOD_BOOTSTRAP");
  WayToMeet way = chosen.target->way(plan, environment);
  return row("bootstrap", way.bootstrap + ": " + way.why) +
         (way.why_no_pmix.empty() ? "" : more("not pmix: " + way.why_no_pmix));
}

// The map of the ranks on this machine, if it has GPUs.
std::string gpus_here(const JobOptions& plan, const Environment& environment) {
  topology::PlacementRequest request;
  std::vector<int> ranks;
  const topology::VisibleGpus visible = topology::visible_gpus(environment);
  auto allowed = posix::affinity();
  if (visible.gpus.empty() || !allowed || plan.site) return "";
  for (const Placement& placement : plan.placements) {
    if (!plan.hosts[placement.host_index].reach.empty()) continue;
    ranks.push_back(placement.rank.value);
    request.ranks.push_back({*allowed, visible.gpus});
  }
  if (ranks.empty()) return "";
  std::vector<std::string> notices;
  auto machine = topology::read_machine(environment, notices, true);
  if (!machine) return row("GPUs", machine.error().message);
  auto placement = topology::place_ranks(*machine, request);
  if (!placement) return row("GPUs", placement.error().message);
  std::string text;
  for (std::size_t at = 0; at < ranks.size(); ++at) {
    const std::string line =
        "rank " + std::to_string(ranks[at]) + ": " + topology::describe_placement(*machine, placement->ranks[at]);
    text += text.empty() ? row("GPUs", line) : more(line);
  }
  if (const std::string links = topology::describe_gpu_links(*machine, placement->ranks); !links.empty())
    text += more(links);
  for (const std::string& notice : placement->notices) text += more(notice);
  return visible.doubt.empty() ? text : text + more(visible.doubt);
}

// Returns the command that a rank on this host would become. Below its launcher the rank may need to see more folders.
Result<std::string> container(const Flags& flags, const Environment& environment) {
  if (!flags.has("container")) return std::string();
  auto image = find_image(flags.get("container"));
  if (!image) return image.error();
  auto command = command_in_image(*image, {"command"}, environment, host_view());
  if (!command) return row("container", command.error().message);
  return row("container", joined(*command, " "));
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
  auto in_container = container(request.flags, environment);
  if (!in_container) return std::move(in_container.error());
  text += *in_container + bootstrap(*config, *chosen, *plan, environment);
  text += transport(*config, *plan, environment) + algorithm(*config, !is_on_one_node(*plan));
  text += gpus_here(*plan, environment);
  for (std::string& notice : unused_flags(*chosen->target, request.flags)) warnings.push_back(std::move(notice));
  for (const std::string& warning : warnings) text += row("note", warning);
  return text;
}

}  // namespace hvd::launcher
