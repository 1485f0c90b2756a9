// A plan with the mpiexec of PALS, inside a job of PBS on a machine with PALS (HPE Cray). The ranks find each other
// by PALS's PMIx.
#include <algorithm>
#include <filesystem>

#include "launcher/targets/dialects.hpp"
#include "launcher/targets/target.hpp"
#include "native/posix/processes/ask_program.hpp"
#include "native/posix/processes/process.hpp"

namespace hvd::launcher {
namespace {

// Finds PALS's mpiexec. It is in a folder with PALS's name (/opt/cray/pe/pals/1.2.12/bin/mpiexec), or its --version
// names PALS.
std::optional<std::string> find_pals(const Environment& environment) {
  int code = 0;
  auto program = posix::find_program(environment.get("HOROVOD_MPIEXEC").value_or("mpiexec"),
                                     posix::search_path(environment), code);
  if (!program) return std::nullopt;
  std::error_code unresolved;
  std::string path = std::filesystem::canonical(*program, unresolved).string();
  if (path.find("/pals/") != std::string::npos) return *program;
  std::string version = posix::answer_of({*program, "--version"}, std::chrono::seconds(20));
  bool is_pals = std::ranges::any_of(bootstrap::row_of(bootstrap::Launcher::pals).says,
                                     [&](const char* word) { return version.find(word) != std::string::npos; });
  return is_pals ? std::optional(*program) : std::nullopt;
}

std::optional<std::string> applies(const JobRequest& request) {
  if (!request.around.is_of("pbs") || !is_for_the_whole_job(request)) return std::nullopt;
  auto program = find_pals(request.environment);
  if (!program) return std::nullopt;
  return request.around.evidence() + " and " + *program + " is PALS's: this is inside a job of PBS with PALS";
}

std::vector<std::string> where_to(const std::vector<HostSlots>& hosts, const schedulers::Allocation& allocation) {
  int all = 0, most = 0;
  std::string names;
  for (const HostSlots& host : hosts) {
    all += host.slots;
    most = std::max(most, host.slots);
    names += (names.empty() ? "" : ",") + host.host;
  }
  std::vector<std::string> words = {"-n", std::to_string(all), "--ppn", std::to_string(most), "--hosts", names};
  auto smallest = std::ranges::min_element(allocation.hosts, {}, &schedulers::Host::cores);
  int depth = smallest->cores / most;
  if (depth > 0) words.insert(words.end(), {"--cpu-bind", "depth", "--depth", std::to_string(depth)});
  else words.insert(words.end(), {"--cpu-bind", "none"});
  return words;
}

Result<JobOptions> plan(const JobRequest& request) {
  auto program = find_pals(request.environment);
  auto hosts = hosts_with_ranks(request);
  if (!hosts) return hosts.error();
  SiteLauncher site;
  site.launcher = bootstrap::Launcher::pals;
  site.dialect = &dialect_of_pals;
  site.command = {program.value_or("mpiexec"), "--pmi=pmix", "--line-buffer"};
  const std::vector<std::string> where = where_to(*hosts, *request.around.allocation());
  site.command.insert(site.command.end(), where.begin(), where.end());
  return plan_with_keepers(request, std::move(site));
}

WayToMeet way(const JobOptions&, const Environment& environment) {
  WayToMeet found{"pmix", "`mpiexec --pmi=pmix` of PALS serves it, and our plugin and libpmix open here"};
  if (!can_use_pmix(environment, &found.why_no_pmix))
    found = {"none", "PALS serves PMIx for us alone", found.why_no_pmix};
  return found;
}

}  // namespace

const Target pals_target{"pals", &applies, &plan, &way};

}  // namespace hvd::launcher
