// A plan for --mpi, with the mpiexec that is installed. The answer of mpiexec --version tells which launcher it is.
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "launcher/agent/rank_environment.hpp"
#include "launcher/agent/rank_keeper.hpp"
#include "launcher/targets/mpi_command.hpp"
#include "launcher/targets/target.hpp"
#include "native/posix/processes/ask_program.hpp"
#include "native/posix/processes/process.hpp"
#include "schedulers/slurm/step.hpp"

namespace hvd::launcher {
namespace {

std::optional<std::string> applies(const JobRequest& request) {
  if (!request.flags.is_set("use_mpi")) return std::nullopt;
  return "--mpi";
}

std::vector<std::string> names_to_export(const Environment& environment) {
  std::vector<std::string> names;
  const Environment abroad = exportable(without_traces_of_launchers(environment));
  for (const auto& [name, value] : abroad.variables())
    if (!name.starts_with("OMPI_") && !name.starts_with("PRTE_") && !name.starts_with("PMIX_")) names.push_back(name);
  return names;
}

Result<JobOptions> plan(const JobRequest& request) {
  const Environment& environment = request.environment;
  auto program = find_mpiexec(environment);
  if (!program) return program.error();
  MpiexecOptions options;
  options.ranks = request.ranks;
  options.is_root = ::geteuid() == 0;
  if (!request.hosts.empty()) {
    auto hosts = hosts_with_ranks(request);
    if (!hosts) return hosts.error();
    for (const HostSlots& host : *hosts)
      if (host.host.find(':') != std::string::npos)
        return Error(ErrorCode::unsupported, "--mpi: the hosts of an mpiexec cannot be given as IPv6 addresses (" +
                                                 host.host + "): use their names");
    options.hosts = std::move(*hosts);
    options.exported = names_to_export(environment);
    for (const auto& [name, value] : variables_of(request.flags)) options.exported.push_back(name);
    std::sort(options.exported.begin(), options.exported.end());
    options.exported.erase(std::unique(options.exported.begin(), options.exported.end()), options.exported.end());
  }
  std::vector<std::string> agent = ssh_stand_in(environment);
  if (agent.size() == 1) options.ssh = agent[0];
  options.ssh_port = request.flags.get("ssh_port");
  options.ssh_identity_file = request.flags.get("ssh_identity_file");
  options.interfaces = request.flags.get("nics");
  options.binding = split_words(request.flags.get("binding_args"));
  options.more = split_words(request.flags.get("mpi_args"));
  auto keeper = program_on_other_hosts(environment);
  if (!keeper) return keeper.error();
  KeeperOrders orders{request.grace};
  bool chooses_readers = std::any_of(options.more.begin(), options.more.end(), [](const std::string& word) {
    return word == "-s" || word == "--s" || word == "-stdin" || word == "--stdin";
  });
  orders.packs_input = program->launcher != bootstrap::Launcher::open_mpi && !chooses_readers;
  options.command = below_a_keeper(*keeper, orders, request.command);
  auto site = mpi_command(*program, options);
  if (!site) return site.error();
  site->packs_input = orders.packs_input;
  // In a job of Slurm mpiexec starts its daemons with srun. After `sbatch --export=NONE` they would lose PATH.
  for (std::string& name : schedulers::variables_of_slurm_export()) site->unset.push_back(std::move(name));
  return plan_of_site(std::move(*site));
}

WayToMeet way(const JobOptions& plan, const Environment& environment) {
  const bootstrap::LauncherRow& row = bootstrap::row_of(plan.site->launcher);
  if (row.serves == bootstrap::Serves::pmi) return {"pmi", std::string(row.name) + " serves PMI-1"};
  WayToMeet found{"pmix", "the launcher serves PMIx, and our plugin and libpmix open here (mpi for Open MPI 5)"};
  if (!can_use_pmix(environment, &found.why_no_pmix))
    found = {"none", "the launcher serves PMIx alone", found.why_no_pmix};
  return found;
}

}  // namespace

const Target mpi_target{
    "mpi", &applies, &plan, &way, {"mpi_args binding_args ssh_port ssh_identity_file", "with --mpi"}};

}  // namespace hvd::launcher
