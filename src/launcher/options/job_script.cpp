#include "launcher/options/job_script.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <vector>

#include "base/text/comma_list.hpp"
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
    return Error(ErrorCode::invalid_argument, "--jobscript must be one of " +
                                                  jobscripts::names_of(jobscripts::compiled_templates()) + ", not '" +
                                                  scheduler + "'");
  if (name.empty()) name = scheduler;
  std::string file_name = name.substr(name.find_last_of('/') + 1);
  auto site = site_file ? jobscripts::parse_site(*site_file, file_name.substr(0, file_name.rfind(".site")))
                        : jobscripts::find_site(name);
  if (site && site->scheduler != scheduler)
    return Error(ErrorCode::invalid_argument, "the scheduler of the site '" + site->name + "' is " + site->scheduler +
                                                  ", not " + scheduler + ": --jobscript " + site->scheduler);
  return site;
}

// True for a flag of the command line or of --config-file. What the settings of the user and the site say of
// horovodrun is no request for this script.
bool is_asked_for(const Flags& flags, const FlagRow& row) {
  if (!flags.has(row.name)) return false;
  const Origin::Layer layer = flags.origin(row.name).layer;
  return layer == Origin::Layer::flag || layer == Origin::Layer::config_file;
}

// True for the flags that have a place of their own in the script.
bool is_of_scripts(const FlagRow& row) {
  constexpr std::string_view more[] = {"jobscript", "config_file", "max_requeues"};
  return row.use == Use::job_script || std::ranges::find(more, row.name) != std::end(more);
}

bool is_of_containers(const FlagRow& row) {
  return std::string_view(row.name).starts_with("container");
}

// What starts the ranks. Under Slurm an elastic job is horovodrun's, whose agents are steps of srun.
std::string launcher_of(const jobscripts::Site& site, const jobscripts::ScriptRequest& request) {
  return request.is_elastic && site.launcher() == "srun" ? "horovodrun" : site.launcher();
}

// Where horovodrun starts the ranks, it knows best how to start them in an image, unless the site's file tells how.
bool has_wrapper(const jobscripts::Site& site, const jobscripts::ScriptRequest& request) {
  if (request.is_elastic && site.launcher() == "srun") return false;
  return site.launcher() != "horovodrun" || !site.get("container").empty();
}

Error without_place(const FlagRow& row, const std::string& why) {
  return {ErrorCode::invalid_argument, spelling_of(row) + ": " + why};
}

// Returns the flag as it is written for horovodrun.
std::vector<std::string> written_flag(const FlagRow& row, const Flags& flags) {
  const std::string value = flags.get(row.name);
  if (row.kind == Kind::tristate && value == "0") return {words_of(row.negations).front()};
  if (!takes_value(row.kind) || (row.otherwise != nullptr && value == row.otherwise)) return {spelling_of(row)};
  return {spelling_of(row) + "=" + value};
}

// Puts a flag into the script that has no place of its own there: for horovodrun as it was given, for another launcher
// as the variable that it stands for. Fails if there is neither.
Status pass_on(const FlagRow& row, const Flags& flags, const std::string& launcher,
               jobscripts::ScriptRequest& request) {
  if (row.use == Use::question) return without_place(row, "expected this flag or --jobscript, found both");
  const std::string_view name = row.name;
  if (name == "num_proc")
    return Error(ErrorCode::invalid_argument,
                 "-np: the ranks of a job script are --nodes times --ranks-per-node; give these instead");
  if (name == "hosts" || name == "hostfile")
    return without_place(row, "the scheduler chooses the hosts of a job script: leave the flag out");
  if (launcher == "horovodrun") {
    for (std::string& word : written_flag(row, flags)) request.horovodrun_flags.push_back(std::move(word));
    return {};
  }
  if (row.variable == nullptr)
    return without_place(row, launcher +
                                  " starts the ranks of this script, and the flag is for jobs that horovodrun "
                                  "starts: leave it out, or run horovodrun in a script of your own");
  for (const auto& [variable, value] : variables_of(row, flags)) request.variables[variable] = value;
  return {};
}

// Adds everything that was given beside the flags of --jobscript.
Status pass_on_all(const Flags& flags, const jobscripts::Site& site, jobscripts::ScriptRequest& request) {
  for (const auto& [name, variable] : flags.variables) request.variables[name] = variable.value;
  for (const FlagRow& row : flag_rows())
    if (is_asked_for(flags, row) && !is_of_scripts(row) && !(has_wrapper(site, request) && is_of_containers(row)))
      HVD_RETURN_IF_ERROR(pass_on(row, flags, launcher_of(site, request), request));
  if (is_asked_for(flags, *flag_named("--max-requeues")) && !flags.is_set("script_requeue"))
    return Error(ErrorCode::invalid_argument, "--max-requeues: of a job script, it needs --requeue");
  const bool has_image = flags.has("container");
  for (const char* needs_image : {"--container-bind", "--container-mpi"})
    if (!has_image && is_asked_for(flags, *flag_named(needs_image)))
      return Error(ErrorCode::invalid_argument, std::string(needs_image) + " needs --container IMAGE");
  if (!has_wrapper(site, request)) return {};
  request.container = flags.get("container");
  request.container_binds = items_of(flags.get("container_bind"));
  request.container_mpi = flags.get("container_mpi");
  return {};
}

}  // namespace

Result<std::string> job_script(const Flags& flags, const std::optional<std::string>& site_file) {
  auto site = site_of(flags, site_file);
  if (!site) return site.error();
  jobscripts::ScriptRequest request;
  request.is_elastic = is_asked_for(flags, *flag_named("--min-np"));
  if (request.is_elastic) {
    request.spares = flags.get("spares") == "auto" ? 0 : flags.number("spares", 0);
    request.least_ranks = flags.number("min_num_proc", 1);
    request.most_ranks = number_of(flags, "max_num_proc");
  }
  HVD_RETURN_IF_ERROR(pass_on_all(flags, *site, request));
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
  request.is_requeued = flags.is_set("script_requeue");
  request.max_requeues = flags.number("max_requeues", request.max_requeues);
  request.command = flags.command;
  return jobscripts::write_script(*site, request);
}

}  // namespace hvd::launcher
