// A plan with our own agents: one agent on this machine, and one on every other host. An agent on another host is
// started over one ssh connection.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <sstream>

#include "base/deadline.hpp"
#include "base/settings/config.hpp"
#include "base/text/comma_list.hpp"
#include "bootstrap/launch/launch.hpp"
#include "launcher/job/wire_up.hpp"
#include "launcher/targets/elastic_request.hpp"
#include "launcher/targets/remote_starters.hpp"
#include "launcher/targets/target.hpp"
#include "native/posix/machine/affinity.hpp"
#include "native/posix/sockets/tcp_socket.hpp"
#include "schedulers/slurm/components.hpp"

namespace hvd::launcher {
namespace {

constexpr int most_ranks_per_processor = 16;

Error misuse(std::string message) {
  return Error(ErrorCode::invalid_argument, std::move(message));
}

Status check_number_of_ranks(const JobRequest& request) {
  if (request.flags.is_set("oversubscribe")) return {};
  auto allowed = posix::affinity();
  if (!allowed) return {};
  int processors = allowed->count();
  if (request.ranks <= processors * most_ranks_per_processor) return {};
  std::string ranks = std::to_string(request.ranks);
  return misuse("-np " + ranks + " is too many for this machine: this process may use " + std::to_string(processors) +
                " processors, and more than " + std::to_string(most_ranks_per_processor) +
                " ranks on each are hardly meant. --oversubscribe (or -H localhost:" + ranks +
                ") starts them all the same");
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool is_ssh(const std::string& program) {
  return std::filesystem::path(program).filename() == "ssh";
}

// Returns the words of ssh, or of the command that the user has in its place, up to the host.
std::vector<std::string> ssh_words(const JobRequest& request) {
  std::vector<std::string> words = ssh_stand_in(request.environment);
  if (words.empty()) words = {"ssh"};
  // ssh asks no questions, uses no terminal and no X, and leaves nothing behind. The user's ssh_config decides about
  // host keys.
  if (is_ssh(words[0]))
    words.insert(words.end(), {"-T", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ControlMaster=no"});
  if (request.flags.has("ssh_port")) words.insert(words.end(), {"-p", request.flags.get("ssh_port")});
  if (request.flags.has("ssh_identity_file")) words.insert(words.end(), {"-i", request.flags.get("ssh_identity_file")});
  if (is_ssh(words[0])) words.push_back("--");  // the next word is a host, even if it looks like an option
  return words;
}

Result<NetworkOptions> network_of(const JobRequest& request) {
  const Environment environment = with_flags(request);
  std::vector<std::string> warnings;  // warnings are ignored here, because the ranks print them
  auto config = Config::from(environment, warnings);
  if (!config) return std::move(config.error());
  NetworkOptions network;
  network.interfaces = items_of(request.flags.has("nics") ? request.flags.get("nics") : config->network_interfaces);
  network.ports = config->port_range;
  network.start_timeout = milliseconds_of(config->start_timeout_s);
  network.lifeline_patience = std::max(milliseconds_of(config->peer_timeout_s / 2), posix::least_patience);
  auto program = program_on_other_hosts(environment);
  if (!program) return program.error();
  network.remote_program = std::move(*program);
  return network;
}

// Returns the scheduler's own command that starts agents; nullopt for ssh, or for what the user has in its place.
std::optional<RemoteStarter> starter_of(const JobRequest& request) {
  if (request.flags.is_set("use_gloo") || !ssh_stand_in(request.environment).empty()) return std::nullopt;
  // Else srun starts the ranks (slurm.cpp), or this is one of several tasks, or the user wants this machine alone.
  if (request.around.is_of("slurm") && !is_elastic(request.flags)) return std::nullopt;
  return remote_starter(request.around, with_flags(request));
}

std::optional<std::string> applies(const JobRequest& request) {
  if (request.flags.is_set("use_gloo")) return "--gloo: we start the ranks ourselves";
  if (auto starter = starter_of(request))
    return request.around.evidence() + ": " + starter->program + " leads to the other hosts of the job (--gloo: ssh)";
  if (request.around.is_a_job())
    return std::string("no launcher of ") + request.around.scheduler().name() +
           " is there, or this is one of several tasks, or this machine alone was named";
  return "this is not inside a scheduler's job (--mpi would use an MPI's launcher)";
}

// True if nobody has named hosts, neither the user nor a scheduler. If several tasks run horovodrun, each starts ranks
// of its own on its own host.
bool is_left_to_this_machine(const JobRequest& request) {
  if (!request.hosts.empty()) return false;
  auto launch = bootstrap::innermost_launch(request.environment);
  return !request.around.is_a_job() || (launch && launch->size > 1);
}

// Returns the hosts that the user names, else those of the scheduler's job, else this machine.
Result<std::vector<HostSlots>> hosts_for(const JobRequest& request) {
  if (!request.hosts.empty()) return request.hosts;
  if (is_left_to_this_machine(request)) {
    HVD_RETURN_IF_ERROR(check_number_of_ranks(request));
    return std::vector<HostSlots>{{"localhost", request.ranks}};
  }
  const bool may_share = request.flags.is_set("oversubscribe");
  auto hosts = is_elastic(request.flags) ? request.around.all_hosts(request.ranks, may_share)
                                         : request.around.share_out(request.ranks, may_share);
  if (!hosts && !request.around.allocation())
    hosts.error().message += ". -H localhost:" + std::to_string(request.ranks) + " starts the ranks on this machine";
  return hosts;
}

// No rank may run on a launch node, and only jsrun leads from it to the compute nodes.
Status check_launch_node(const JobRequest& request) {
  if (!request.around.is_of("lsf")) return {};
  const auto& allocation = request.around.allocation();
  if (!allocation || allocation->launch_host.empty()) return {};
  auto launch = bootstrap::innermost_launch(request.environment);
  if (launch) return {};  // a launcher (jsrun) started this process, so it is on a compute node
  return Error(ErrorCode::unsupported,
               "this is the launch node " + allocation->launch_host + " of LSF's job " + allocation->job +
                   ", and only jsrun can start ranks on its compute nodes: leave out --gloo and -H localhost, and put "
                   "jsrun into PATH");
}

// Agents that are steps of srun can be on the nodes of one component only.
Status check_components(const JobRequest& request) {
  if (!starter_of(request) || !request.around.is_of("slurm") ||
      schedulers::components_of_job(request.environment).size() < 2)
    return {};
  return Error(ErrorCode::unsupported,
               "--min-np inside a heterogeneous job of Slurm is not in this version: ask for one component, or "
               "give --gloo to use ssh");
}

// Checks the hosts against the job whose scheduler's command leads to them. No command leads to this machine.
Status check_reach(const JobRequest& request, const std::vector<HostSlots>& hosts, const OwnNames& own) {
  auto is_here = [&](const HostSlots& host) { return is_this_machine(host.host, own); };
  if (!starter_of(request) || std::ranges::all_of(hosts, is_here)) return {};
  HVD_RETURN_IF_ERROR(check_components(request));
  return request.around.check_hosts(hosts);
}

int slots_of(const std::vector<HostSlots>& hosts) {
  int slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  return slots;
}

Status make_elastic(JobOptions& options, const JobRequest& request, std::vector<HostSlots>& hosts) {
  auto settings = elastic_settings(request);
  if (!settings) return settings.error();
  // A machine that nobody has named has as many slots as may be used.
  if (is_left_to_this_machine(request))
    hosts.front().slots = request.flags.number("max_num_proc", settings->first) +
                          (settings->spares == Membership::spares_on_all_slots ? 0 : settings->spares);
  if (slots_of(hosts) < settings->first)
    return misuse("-np " + std::to_string(settings->first) + " asks for more ranks than the hosts have slots (" +
                  std::to_string(slots_of(hosts)) + "): give more slots or a smaller -np");
  options.elastic = ElasticOptions{std::move(*settings), hosts};
  options.elastic->ask_for_end_of_job_around = question_about_job_around(request);
  return {};
}

// The way to a host other than this machine. The scheduler's command knows the hosts of the job, by its own names; a
// discovery script may find others.
HostPlan way_to(const std::string& name, const JobRequest& request) {
  HostPlan host{name, {}};
  auto starter = starter_of(request);
  const auto name_in_job = starter ? request.around.name_of(name) : std::nullopt;
  if (!name_in_job) starter.reset();
  host.takes_words = starter.has_value();
  host.reach = starter ? starter->words : ssh_words(request);
  host.reach.push_back(name_in_job.value_or(name));
  if (starter)
    host.trial =
        "`" + (starter->carries_messages ? joined(host.reach, " ") + " true" : starter->program + " hostname") + "`";
  return host;
}

std::function<HostPlan(const std::string&)> plan_by_name(const JobRequest& request) {
  return [request, own = OwnNames::of_this_machine()](const std::string& name) {
    return is_this_machine(name, own) ? HostPlan{name, {}} : way_to(name, request);
  };
}

// Hosts come from a script while the job runs. This machine has an agent from the start, because it can be one of them.
Result<JobOptions> plan_with_script(const JobRequest& request) {
  HVD_RETURN_IF_ERROR(check_components(request));
  auto settings = elastic_settings(request);
  if (!settings) return settings.error();
  auto network = network_of(request);
  if (!network) return network.error();
  auto placements = place({{"localhost", request.ranks}}, request.ranks);
  if (!placements) return placements.error();
  JobOptions options;
  options.hosts.push_back({"localhost", {}});
  options.placements = std::move(*placements);
  options.network = std::move(*network);
  options.elastic.emplace();
  options.elastic->membership = std::move(*settings);
  options.elastic->script = Discovery::Script{request.flags.get("host_discovery_script")};
  if (request.flags.has("slots")) options.elastic->script->slots_per_host = request.flags.number("slots", 1);
  options.elastic->plan_of_host = plan_by_name(request);
  options.elastic->ask_for_end_of_job_around = question_about_job_around(request);
  return options;
}

Result<JobOptions> plan(const JobRequest& request) {
  if (request.flags.has("host_discovery_script")) return plan_with_script(request);
  const OwnNames own = OwnNames::of_this_machine();
  auto named = hosts_for(request);
  if (!named) return named.error();
  HVD_RETURN_IF_ERROR(check_launch_node(request));
  HVD_RETURN_IF_ERROR(check_reach(request, *named, own));
  auto hosts = distinct_hosts(*named, own);
  if (!hosts) return hosts.error();
  JobOptions options;
  if (is_elastic(request.flags)) HVD_RETURN_IF_ERROR(make_elastic(options, request, *hosts));
  const int slots = options.elastic ? slots_of(*hosts) : request.ranks;
  auto placements = place(*hosts, slots);
  if (!placements) return placements.error();
  options.placements = std::move(*placements);
  hosts->resize(options.placements.back().host_index + 1);  // the other hosts get no rank
  bool any_remote = false;
  for (const HostSlots& host : *hosts) {
    options.hosts.push_back({host.host, {}});
    any_remote = any_remote || !is_this_machine(host.host, own);
  }
  if (!any_remote) return options;
  auto network = network_of(request);
  if (!network) return network.error();
  options.network = std::move(*network);
  for (HostPlan& host : options.hosts) {
    if (is_this_machine(host.name, own)) continue;
    host = way_to(host.name, request);
  }
  if (options.elastic) options.elastic->plan_of_host = plan_by_name(request);
  return options;
}

WayToMeet way(const JobOptions& plan, const Environment& environment) {
  if (plan.elastic) return {"assigned", "the ranks come and go; horovodrun tells each process its rank at every start"};
  return way_to_meet(plan.is_on_several_machines(), environment);
}

}  // namespace

const Target agents_target{
    "agents", &applies, &plan, &way, {"ssh_port ssh_identity_file", "where horovodrun itself starts the ranks"}};

std::vector<std::string> ssh_stand_in(const Environment& environment) {
  std::vector<std::string> words = words_of(environment.get("HOROVOD_SSH").value_or(""));
  // Kubeflow's MPI operator puts this script into its pods, which have no ssh.
  constexpr const char* kubexec = "/etc/mpi/kubexec.sh";
  if (words.empty() && environment.get("OMPI_MCA_plm_rsh_agent") == kubexec) words = {kubexec};
  return words;
}

}  // namespace hvd::launcher
