#include "launcher/targets/target.hpp"

#include <algorithm>
#include <filesystem>

#include "base/text/comma_list.hpp"
#include "bootstrap/launch/launch.hpp"
#include "bootstrap/pmix/plugin.hpp"
#include "launcher/agent/rank_keeper.hpp"
#include "launcher/options/mpi_plugins.hpp"
#include "launcher/targets/elastic_request.hpp"
#include "native/posix/plugins/plugin.hpp"

namespace hvd::launcher {
namespace {

// The first target that applies is used; the last one always applies.
constexpr const Target* targets[] = {&mpi_target,  &slurm_target, &jsrun_target,
                                     &pals_target, &flux_target,  &agents_target};

// These texts are Horovod's: its users know them.
Status check_request(const JobRequest& request) {
  if (!request.flags.is_set("use_mpi") && !request.flags.is_set("use_jsrun")) return {};
  if (!has_mpi_plugin(request.environment))
    return Error(ErrorCode::unsupported,
                 "MPI support has not been built.  If this is not expected, ensure MPI is installed and reinstall "
                 "Horovod with HOROVOD_WITH_MPI=1 to debug the build error.");
  if (!request.flags.is_set("use_jsrun")) return {};
  if (!request.around.is_of("lsf"))
    return Error(ErrorCode::unsupported,
                 "Horovod did not detect an LSF job.  The jsrun launcher can only be used in that environment. Please, "
                 "pick a different launcher for other environments.");
  return {};
}

bool is_named_localhost(const HostSlots& host, const OwnNames& own) {
  return is_this_machine(host.host, own) && host.host != own.name;
}

}  // namespace

Environment with_flags(const JobRequest& request) {
  Environment environment = request.environment;
  for (const auto& [name, value] : variables_of(request.flags)) environment.set(name, value);
  return environment;
}

Result<ChosenTarget> choose_target(const JobRequest& request) {
  // First, because no other build of Horovod or other MPI would change it.
  if (is_elastic(request.flags) && request.flags.is_set("use_mpi")) return not_elastic(mpi_target, "--mpi");
  HVD_RETURN_IF_ERROR(check_request(request));
  for (const Target* target : targets)
    if (auto why = target->applies(request)) {
      if (is_elastic(request.flags) && target != &agents_target) return not_elastic(*target, *why);
      return ChosenTarget{target, *why};
    }
  return Error(ErrorCode::unsupported,
               "no launcher was found that can start ranks here: horovodrun --explain tells what was tried");
}

std::vector<std::string> unused_flags(const Target& target, const Flags& flags) {
  auto reads = [](const Target& it, const char* name) { return it.own_flags.names.find(name) != std::string::npos; };
  std::vector<std::string> notices;
  for (const FlagRow& row : flag_rows()) {
    if (row.use != Use::some_targets || !flags.has(row.name) || reads(target, row.name)) continue;
    const Origin::Layer layer = flags.origin(row.name).layer;
    if (layer == Origin::Layer::user || layer == Origin::Layer::site) continue;  // a file with flags for all jobs
    std::vector<std::string> places;
    for (const Target* other : targets)
      if (reads(*other, row.name)) places.emplace_back(other->own_flags.where);
    notices.push_back(spelling_of(row) + " is of no use here, only " + joined(places, ", or "));
  }
  return notices;
}

bool can_use_pmix(const Environment& environment, std::string* why_not) {
  auto plugin = posix::open_plugin<bootstrap::PmixPlugin>("pmix", environment);
  if (!plugin && why_not != nullptr) *why_not = plugin.error().message;
  return plugin.has_value();
}

bool is_for_the_whole_job(const JobRequest& request) {
  if (request.flags.is_set("use_gloo")) return false;
  auto launch = bootstrap::innermost_launch(request.environment);
  if (launch && launch->size > 1) return false;
  const OwnNames own = OwnNames::of_this_machine();
  return request.hosts.empty() ||
         !std::ranges::all_of(request.hosts, [&](const HostSlots& host) { return is_named_localhost(host, own); });
}

Result<std::vector<HostSlots>> hosts_with_ranks(const JobRequest& request) {
  if (request.hosts.empty()) return request.around.share_out(request.ranks, request.flags.is_set("oversubscribe"));
  auto hosts = distinct_hosts(request.hosts, OwnNames::of_this_machine());
  if (!hosts) return hosts;
  if (request.around.is_a_job()) HVD_RETURN_IF_ERROR(request.around.check_hosts(*hosts));
  auto placements = place(*hosts, request.ranks);
  if (!placements) return placements.error();
  hosts->resize(placements->back().host_index + 1);
  for (HostSlots& host : *hosts)
    host.slots =
        static_cast<int>(std::ranges::count(*placements, host.host, [](const Placement& each) { return each.host; }));
  return hosts;
}

JobOptions plan_of_site(SiteLauncher site) {
  JobOptions options;
  options.hosts = {{"localhost", {}}};
  options.placements.emplace_back().host = "localhost";
  options.site = std::move(site);
  return options;
}

Result<JobOptions> plan_with_keepers(const JobRequest& request, SiteLauncher site) {
  auto horovodrun = program_on_other_hosts(request.environment);
  if (!horovodrun) return horovodrun.error();
  site.packs_input = true;
  for (std::string& word : below_a_keeper(*horovodrun, {request.grace, true, true}, request.command))
    site.command.push_back(std::move(word));
  return plan_of_site(std::move(site));
}

Result<std::string> program_on_other_hosts(const Environment& environment) {
  std::string program = environment.get("HOROVOD_REMOTE_PROGRAM").value_or("");
  if (!program.empty()) return program;
  std::error_code failed;
  program = std::filesystem::read_symlink("/proc/self/exe", failed).string();
  if (failed) return Error(ErrorCode::system, "/proc/self/exe cannot be read: set HOROVOD_REMOTE_PROGRAM");
  return program;
}

std::string host_of_each_rank(const std::vector<Placement>& placements) {
  std::string text;
  for (const Placement& placement : placements) text += (text.empty() ? "" : ",") + placement.host;
  return text;
}

}  // namespace hvd::launcher
