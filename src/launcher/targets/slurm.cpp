// A plan with srun, inside an allocation of Slurm. The ranks find each other by srun's PMIx or PMI-2.
#include <algorithm>
#include <cctype>

#include "base/text/shell_word.hpp"
#include "bootstrap/launch/launch.hpp"
#include "launcher/agent/rank_keeper.hpp"
#include "launcher/targets/dialects.hpp"
#include "launcher/targets/elastic_request.hpp"
#include "launcher/targets/slurm_share.hpp"
#include "launcher/targets/target.hpp"
#include "native/posix/processes/ask_program.hpp"
#include "native/posix/processes/process.hpp"
#include "schedulers/slurm/components.hpp"
#include "schedulers/slurm/step.hpp"

namespace hvd::launcher {
namespace {

using schedulers::SlurmComponent;

// In a job of `sbatch --export=NONE` (or of a list of variables), srun would take sbatch's option for its own.
constexpr const char* all_variables = "--export=ALL";

std::optional<std::string> applies(const JobRequest& request) {
  const Environment& environment = request.environment;
  if (!request.around.is_of("slurm") || request.flags.is_set("use_gloo")) return std::nullopt;
  if (is_elastic(request.flags)) return std::nullopt;  // a step of srun ends with its first rank that fails
  // If several tasks of a step run horovodrun, each starts ranks of its own.
  if (auto launch = bootstrap::innermost_launch(environment);
      launch && launch->size > 1 && !schedulers::has_terminal_of_slurm_step(environment))
    return std::nullopt;
  int code = 0;
  if (!posix::find_program("srun", posix::search_path(environment), code)) return std::nullopt;
  const OwnNames own = OwnNames::of_this_machine();
  if (!request.hosts.empty() && std::all_of(request.hosts.begin(), request.hosts.end(), [&](const HostSlots& host) {
        return is_this_machine(host.host, own) && host.host != own.name;
      }))
    return std::nullopt;  // the user asked for localhost
  return request.around.evidence() + ": this is inside an allocation of Slurm (--gloo would use ssh instead)";
}

// What is installed on the nodes of the ranks. One node answers for all: this one, or a node that a login node asks.
struct OnNodes {
  std::string horovodrun;  // the path of horovodrun on the nodes; empty: the nodes have none
  bool can_use_pmix = false;
  std::string why_no_pmix;
};

OnNodes ask_nodes(const Environment& environment) {
  OnNodes nodes;
  if (auto program = program_on_other_hosts(environment)) nodes.horovodrun = *program;
  if (!schedulers::is_on_slurm_node(environment) && !nodes.horovodrun.empty()) {
    std::string answer = posix::answer_of({"srun", "-N1", "-n1", "--overlap", all_variables, "--mpi=none", "--quiet",
                                           nodes.horovodrun, pmix_question_flag},
                                          std::chrono::seconds(20), /*also_errors=*/false);
    if (!answer.empty()) {
      nodes.can_use_pmix = answer.starts_with(pmix_answer);
      nodes.why_no_pmix = answer.substr(0, answer.find('\n'));
      return nodes;
    }
    nodes.horovodrun.clear();
  }
  nodes.can_use_pmix = can_use_pmix(environment, &nodes.why_no_pmix);
  return nodes;
}

struct MpiOfSrun {
  std::string name;  // the name in srun --mpi=NAME
  WayToMeet way;
};

// Chooses pmix if srun and the nodes both have it, else pmi2: every MPICH understands its server as well. Slurm 22.05
// numbers the nodes of all components by their names for PMIx; the parts of its server then look for each other on the
// wrong nodes, and the step hangs or is ended.
MpiOfSrun choose_mpi(const OnNodes& nodes, const std::string& out_of_order) {
  std::string list = posix::answer_of({"srun", "--mpi=list"}, std::chrono::seconds(20));
  auto has = [&](const std::string& word) {
    std::size_t at = list.find(word);
    while (at != std::string::npos) {
      std::size_t end = at + word.size();
      if ((at == 0 || !std::isalnum(static_cast<unsigned char>(list[at - 1]))) &&
          (end == list.size() || std::isspace(static_cast<unsigned char>(list[end])) != 0 || list[end] == ','))
        return true;
      at = list.find(word, end);
    }
    return false;
  };
  if (has("pmix") && nodes.can_use_pmix && out_of_order.empty())
    return {
        "pmix",
        {"pmix", "`srun --mpi=list` has it, and our plugin and libpmix open on the job's nodes (mpi for Open MPI 5)"}};
  std::string no_pmix = !nodes.can_use_pmix ? nodes.why_no_pmix
                        : !has("pmix")      ? "`srun --mpi=list` has no pmix"
                                            : "the nodes of the components, " + out_of_order +
                                             ", are not in the order of their names, in which Slurm's server of "
                                             "PMIx takes them";
  if (has("pmi2")) return {"pmi2", {"pmi", "srun --mpi=pmi2 is its server", no_pmix}};
  return {
      "none",
      {"slurm", "srun serves neither PMIx nor PMI-2 for us; the ranks meet in the folder HOROVOD_SHARED_DIR", no_pmix}};
}

Status check_room(const JobRequest& request, const std::vector<SlurmComponent>& components) {
  if (request.flags.is_set("oversubscribe")) return {};
  const Environment& environment = request.environment;
  int room = 0;
  std::string why;
  for (const SlurmComponent& component : components) {
    room += component.room;
    if (const std::string source = schedulers::source_of_room(environment, component); !source.empty())
      why += (why.empty() ? ", by " : ", ") + source;
  }
  if (room == 0 || request.ranks <= room) return {};
  return Error(ErrorCode::invalid_argument,
               "-np " + std::to_string(request.ranks) + " asks for more ranks than Slurm's job " +
                   request.around.job() + " has room for (" + std::to_string(room) + why +
                   "): ask for more (sbatch -n " + std::to_string(request.ranks) +
                   "), give a smaller -np, or let ranks share processors (--oversubscribe)");
}

// srun takes the word ":" for the beginning of another program, wherever the word is.
std::vector<std::string> without_a_keeper(const std::vector<std::string>& command) {
  if (std::find(command.begin(), command.end(), ":") == command.end()) return command;
  std::string text = "exec";
  for (const std::string& word : command) text += " " + in_shell_quotes(word);
  return {"sh", "-c", text};
}

// The hosts that the user has named, by Slurm's own names.
Result<std::vector<HostSlots>> hosts_of_slurm(const JobRequest& request) {
  HVD_RETURN_IF_ERROR(request.around.check_hosts(request.hosts));
  std::vector<HostSlots> hosts = request.hosts;
  for (HostSlots& host : hosts) host.host = request.around.name_of(host.host).value_or(host.host);
  return distinct_hosts(hosts, OwnNames::of_this_machine());
}

// Returns the words that tell where the ranks of a component go (onto the named hosts, if any are named), and what they
// take there.
Result<std::vector<std::string>> place_in(const SlurmComponent& component, const JobRequest& request,
                                          const std::optional<SlurmShare>& share) {
  std::vector<std::string> words;
  auto add = [&](std::initializer_list<std::string> more) { words.insert(words.end(), more.begin(), more.end()); };
  add({"-n", std::to_string(component.ranks)});
  if (!request.hosts.empty()) {
    auto hosts = hosts_of_slurm(request);
    if (!hosts) return hosts.error();
    auto placements = place(*hosts, request.ranks);
    if (!placements) return placements.error();
    add({"-N", std::to_string(placements->back().host_index + 1), "--distribution=arbitrary", "-w",
         host_of_each_rank(*placements)});
  } else if (component.nodes > 0) {
    add({"-N", std::to_string(std::min(component.nodes, component.ranks))});
  }
  if (share) {
    for (std::string& word : words_of(*share)) words.push_back(std::move(word));
  } else if (component.cpus_per_rank > 0) {
    add({"-c", std::to_string(component.cpus_per_rank)});
  }
  return words;
}

Result<std::optional<SlurmShare>> share_of(const JobRequest& request) {
  if (!request.flags.has("share")) return std::optional<SlurmShare>();
  auto share = parse_share(request.flags.get("share"));
  if (!share) return share.error();
  return std::optional(*share);
}

Result<JobOptions> plan(const JobRequest& request) {
  const Environment& environment = request.environment;
  std::vector<SlurmComponent> components = schedulers::components_of_job(environment);
  if (components.size() > 1 && !request.hosts.empty())
    return Error(ErrorCode::unsupported,
                 "-H inside a heterogeneous job of Slurm is not in this version: leave it out (each component gets "
                 "as many ranks as it has tasks), or give --gloo to use ssh");
  auto share = share_of(request);
  if (!share) return share.error();
  HVD_RETURN_IF_ERROR(check_room(request, components));
  share_out(components, request.ranks);
  OnNodes nodes = ask_nodes(environment);
  MpiOfSrun mpi = choose_mpi(nodes, schedulers::out_of_order(components));
  // If the slurmstepd of a node is killed, the ranks of the node live on and srun waits for them forever, unless the
  // ranks have keepers.
  const auto command = nodes.horovodrun.empty() ? without_a_keeper(request.command)
                                                : below_a_keeper(nodes.horovodrun, {request.grace}, request.command);
  SiteLauncher site;
  site.launcher = bootstrap::Launcher::slurm;
  site.dialect = &dialect_of_srun;
  site.way = mpi.way;
  site.unset = schedulers::variables_of_slurm_step(environment);
  if (*share)
    for (std::string& name : schedulers::variables_of_slurm_resources()) site.unset.push_back(std::move(name));
  auto add = [&](const std::vector<std::string>& words) {
    site.command.insert(site.command.end(), words.begin(), words.end());
  };
  // Each component gets all of the options, and the command.
  for (const SlurmComponent& component : components) {
    if (component.ranks == 0) continue;
    bool is_first = site.command.empty();
    add({is_first ? "srun" : ":", "--mpi=" + mpi.name, all_variables, "--label", "--kill-on-bad-exit=1",
         "--quit-on-interrupt", is_first ? "--input=0" : "--input=none"});
    if (!component.suffix.empty()) add({"--het-group=" + component.suffix.substr(component.suffix.rfind('_') + 1)});
    auto where = place_in(component, request, *share);
    if (!where) return where.error();
    add(*where);
    if (schedulers::is_in_slurm_step(environment) && !*share) add({"--overlap"});
    if (request.flags.is_set("oversubscribe")) add({"--overcommit"});
    add(command);
  }
  return plan_of_site(std::move(site));
}

WayToMeet way(const JobOptions& plan, const Environment&) {
  return plan.site->way;
}

}  // namespace

const Target slurm_target{"slurm", &applies, &plan, &way, {"share", "where srun starts the ranks"}};

}  // namespace hvd::launcher
