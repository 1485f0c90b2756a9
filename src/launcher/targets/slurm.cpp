// Inside of an allocation of Slurm: srun, whose PMIx or PMI-2 the ranks find each other by.
#include <algorithm>
#include <cctype>

#include "bootstrap/launch.hpp"
#include "launcher/rank_keeper.hpp"
#include "launcher/targets/slurm_sizes.hpp"
#include "launcher/targets/target.hpp"
#include "native/posix/ask_program.hpp"
#include "native/posix/process.hpp"

namespace hvd::launcher {
namespace {

// The one task of `srun -n 4 --pty bash` that has a terminal; the other shells read the end of their input and are gone.
bool is_shell_of_a_person(const Environment& environment) {
  return environment.has("SLURM_PTY_PORT") && bootstrap::number_in(environment, "SLURM_PROCID") == 0;
}

std::optional<std::string> applies(const Request& request) {
  const Environment& environment = request.environment;
  std::string job = environment.get("SLURM_JOB_ID").value_or("");
  if (job.empty() || request.flags.is_set("use_gloo")) return std::nullopt;
  // Each of several tasks of a step is its own master already.
  if (auto launch = bootstrap::innermost_launch(environment);
      launch && launch->size > 1 && !is_shell_of_a_person(environment))
    return std::nullopt;
  int code = 0;
  if (!posix::find_program("srun", environment.get("PATH").value_or("/usr/bin:/bin"), code)) return std::nullopt;
  const OwnNames own = OwnNames::of_this_machine();
  if (!request.hosts.empty() && std::all_of(request.hosts.begin(), request.hosts.end(), [&](const HostSlots& host) {
        return is_this_machine(host.host, own) && host.host != own.name;
      }))
    return std::nullopt;  // localhost is what was asked for
  return "SLURM_JOB_ID=" + job + ": this is inside of an allocation of Slurm (--gloo would use ssh instead)";
}

// What the ranks' nodes have. On one of them this one answers for all; a login node asks.
struct OnNodes {
  std::string horovodrun;  // where it lies there; empty: it does not
  bool can_use_pmix = false;
  std::string why_no_pmix;
};

OnNodes ask_nodes(const Environment& environment) {
  OnNodes nodes;
  if (auto program = program_on_other_hosts(environment)) nodes.horovodrun = *program;
  if (!environment.has("SLURMD_NODENAME") && !nodes.horovodrun.empty()) {
    std::string answer = posix::answer_of(
        {"srun", "-N1", "-n1", "--overlap", "--mpi=none", "--quiet", nodes.horovodrun, pmix_question_flag},
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

// pmix where both sides have it, else pmi2, whose server every MPICH understands as well.
std::string choose_mpi(const OnNodes& nodes) {
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
  if (has("pmix") && nodes.can_use_pmix) return "pmix";
  return has("pmi2") ? "pmi2" : "none";
}

int number_of(const Environment& environment, const char* name) {
  return bootstrap::number_in(environment, name).value_or(0);
}

Status check_room(const Request& request) {
  const Environment& environment = request.environment;
  if (request.flags.is_set("oversubscribe")) return {};
  std::string cpus = environment.get("SLURM_JOB_CPUS_PER_NODE").value_or("");
  int cpus_per_rank = std::max(1, number_of(environment, "SLURM_CPUS_PER_TASK"));
  int room = 0;
  for (int on_node : numbers_per_node(cpus)) room += on_node / cpus_per_rank;
  // The batch system's own number may be larger, where it lets ranks share processors.
  if (!environment.has("SLURM_STEP_ID")) room = std::max(room, number_of(environment, "SLURM_NTASKS"));
  if (room == 0 || request.ranks <= room) return {};
  return Error(ErrorCode::invalid_argument,
               "-np " + std::to_string(request.ranks) + " asks for more ranks than Slurm's job " +
                   environment.get("SLURM_JOB_ID").value_or("") + " has room for (" + std::to_string(room) +
                   ", by SLURM_JOB_CPUS_PER_NODE=" + cpus +
                   (cpus_per_rank > 1 ? " and SLURM_CPUS_PER_TASK=" + std::to_string(cpus_per_rank) : "") +
                   "): ask for more (sbatch -n " + std::to_string(request.ranks) +
                   "), give a smaller -np, or let ranks share processors (--oversubscribe)");
}

// Of a step around us, which srun would take for wishes about the new one.
std::vector<std::string> of_the_step_around(const Environment& environment) {
  if (!environment.has("SLURM_STEP_ID")) return {};
  std::vector<std::string> names;
  for (const auto& [name, value] : environment.variables()) {
    std::string_view text = name;
    for (std::string_view prefix :
         {"SLURM_CPU_BIND", "SLURM_MEM_BIND", "SLURM_GPU_BIND", "SLURM_NTASKS_PER_", "SLURM_TASKS_PER_NODE",
          "SLURM_STEP_", "SLURM_DISTRIBUTION", "SLURM_MPI_TYPE", "SLURM_PTY_"})
      if (text.starts_with(prefix) && text != "SLURM_STEP_ID") {
        names.push_back(name);
        break;
      }
  }
  return names;
}

// srun takes the word ":" for the beginning of another program, wherever it stands.
std::vector<std::string> without_a_keeper(const std::vector<std::string>& command) {
  if (std::find(command.begin(), command.end(), ":") == command.end()) return command;
  std::string text = "exec";
  for (const std::string& word : command) {
    text += " '";
    for (char letter : word) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
    text += "'";
  }
  return {"sh", "-c", text};
}

Result<JobOptions> plan(const Request& request) {
  const Environment& environment = request.environment;
  HVD_RETURN_IF_ERROR(check_room(request));
  SiteLauncher site;
  site.dialect = &dialect_of_srun;
  OnNodes nodes = ask_nodes(environment);
  site.command = {"srun",
                  "--mpi=" + choose_mpi(nodes),
                  "-n",
                  std::to_string(request.ranks),
                  "--label",
                  "--kill-on-bad-exit=1",
                  "--quit-on-interrupt",
                  "--input=0"};
  auto add = [&](std::initializer_list<std::string> words) {
    site.command.insert(site.command.end(), words.begin(), words.end());
  };
  if (!request.hosts.empty()) {
    auto hosts = distinct_hosts(request.hosts, OwnNames::of_this_machine());
    if (!hosts) return hosts.error();
    auto placements = place(*hosts, request.ranks);
    if (!placements) return placements.error();
    add({"-N", std::to_string(placements->back().host_index + 1), "--distribution=arbitrary", "-w",
         host_of_each_rank(*placements)});
  } else if (int nodes = number_of(environment, "SLURM_JOB_NUM_NODES"); nodes > 0) {
    add({"-N", std::to_string(std::min(nodes, request.ranks))});
  }
  if (environment.has("SLURM_STEP_ID")) add({"--overlap"});
  if (request.flags.is_set("oversubscribe")) add({"--overcommit"});
  if (int cpus = number_of(environment, "SLURM_CPUS_PER_TASK"); cpus > 0) add({"-c", std::to_string(cpus)});
  site.unset = of_the_step_around(environment);
  // Ranks outlive the slurmstepd of their node, should it be killed, and srun waits for them for ever; not for keepers.
  auto command = nodes.horovodrun.empty() ? without_a_keeper(request.command)
                                          : below_a_keeper(nodes.horovodrun, {request.grace}, request.command);
  site.command.insert(site.command.end(), command.begin(), command.end());
  return plan_of_site(std::move(site));
}

std::string bootstrap(const JobOptions& plan, const Environment& environment) {
  const std::string& mpi = plan.site->command[1];
  if (mpi == "--mpi=pmix")
    return "pmix: `srun --mpi=list` has it, and our plugin and libpmix open on the job's nodes (mpi for Open MPI 5)";
  OnNodes nodes = ask_nodes(environment);
  std::string no_pmix = nodes.can_use_pmix ? "`srun --mpi=list` has no pmix" : nodes.why_no_pmix;
  if (mpi == "--mpi=pmi2") return "pmi, whose server srun --mpi=pmi2 is; not pmix: " + no_pmix;
  return "slurm, through the folder HOROVOD_SHARED_DIR: srun has neither pmix nor pmi2 for us: " + no_pmix;
}

}  // namespace

const Target slurm_target{"slurm", &applies, &plan, &bootstrap};

}  // namespace hvd::launcher
