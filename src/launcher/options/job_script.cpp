#include "launcher/options/job_script.hpp"

#include <vector>

#include "base/comma_list.hpp"
#include "jobscripts/script.hpp"
#include "jobscripts/site.hpp"

namespace hvd::launcher {

namespace {

std::optional<int> number_of(const Flags& flags, std::string_view name) {
  if (!flags.has(name)) return std::nullopt;
  return flags.number(name, 0);
}

Result<jobscripts::Site> site_of(const Flags& flags, const std::optional<std::string>& site_file) {
  std::string scheduler = flags.get("jobscript"), name = flags.get("script_site");
  if (jobscripts::find_file(jobscripts::compiled_templates(), scheduler) == nullptr)
    return Error(ErrorCode::invalid_argument, "--jobscript must be slurm, lsf or pbs, not '" + scheduler + "'");
  if (name.empty()) name = scheduler;
  std::string file_name = name.substr(name.find_last_of('/') + 1);
  auto site = site_file ? jobscripts::parse_site(*site_file, file_name.substr(0, file_name.rfind(".site")))
                        : jobscripts::find_site(name);
  if (site && site->scheduler != scheduler)
    return Error(ErrorCode::invalid_argument, "the scheduler of the site '" + site->name + "' is " + site->scheduler +
                                                  ", not " + scheduler + ": --jobscript " + site->scheduler);
  return site;
}

}  // namespace

Result<std::string> job_script(const Flags& flags, const std::optional<std::string>& site_file) {
  auto site = site_of(flags, site_file);
  if (!site) return site.error();
  if (flags.has("num_proc"))
    return Error(ErrorCode::invalid_argument,
                 "-np: the ranks of a job script are --nodes times --ranks-per-node; give these instead");
  jobscripts::ScriptRequest request;
  request.time = flags.get("script_time");
  request.nodes = flags.number("script_nodes", 1);
  request.ranks_per_node = number_of(flags, "script_ranks_per_node");
  request.gpus_per_node = number_of(flags, "script_gpus_per_node");
  request.cpus_per_rank = number_of(flags, "script_cpus_per_rank");
  request.account = flags.get("script_account");
  request.queue = flags.get("script_queue");
  request.constraint = flags.get("script_constraint");
  request.job_name = flags.get("script_job_name");
  request.environment = flags.get("script_environment");
  request.modules = items_of(flags.get("script_modules"));
  request.container = flags.get("container");
  request.is_requeued = flags.is_set("script_requeue");
  request.max_requeues = flags.number("max_requeues", request.max_requeues);
  request.command = flags.command;
  return jobscripts::write_script(*site, request);
}

}  // namespace hvd::launcher
