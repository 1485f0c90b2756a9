// A plan with flux run, inside an instance of Flux. The ranks find each other by PMI-1, which every flux-shell
// serves.
#include "launcher/targets/dialects.hpp"
#include "launcher/targets/target.hpp"
#include "native/posix/processes/process.hpp"
#include "schedulers/flux/task.hpp"

namespace hvd::launcher {
namespace {

std::optional<std::string> applies(const JobRequest& request) {
  if (!request.around.is_of("flux") || !is_for_the_whole_job(request)) return std::nullopt;
  // If a task of a job called flux run, it would wait for resources that its own job has.
  if (schedulers::is_flux_task(request.environment)) return std::nullopt;
  int code = 0;
  if (!posix::find_program("flux", posix::search_path(request.environment), code)) return std::nullopt;
  return request.around.evidence() + ": this is inside an instance of Flux (--gloo would use ssh instead)";
}

Result<JobOptions> plan(const JobRequest& request) {
  auto hosts = hosts_with_ranks(request);
  if (!hosts) return hosts.error();
  SiteLauncher site;
  site.launcher = bootstrap::Launcher::flux;
  site.dialect = &dialect_of_flux;
  // The ranks get whole nodes. Otherwise they would see no GPUs, and only one core each.
  site.command = {"flux",
                  "run",
                  "-N",
                  std::to_string(hosts->size()),
                  "-n",
                  std::to_string(request.ranks),
                  "--exclusive",
                  "-o",
                  "pmi=simple",
                  "-o",
                  "cpu-affinity=per-task",
                  "-o",
                  "exit-on-error",
                  "--label-io"};
  if (!request.hosts.empty()) {
    std::string names;
    for (const HostSlots& host : *hosts) names += (names.empty() ? "" : ",") + host.host;
    site.command.push_back("--requires=hosts:" + names);
  }
  return plan_with_keepers(request, std::move(site));
}

WayToMeet way(const JobOptions&, const Environment&) {
  return {"pmi", "flux run -o pmi=simple is its server"};
}

}  // namespace

const Target flux_target{"flux", &applies, &plan, &way};

}  // namespace hvd::launcher
