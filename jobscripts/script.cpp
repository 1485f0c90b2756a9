#include "jobscripts/script.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

#include "base/counted.hpp"
#include "base/text/shell_word.hpp"
#include "jobscripts/container.hpp"
#include "jobscripts/duration.hpp"

namespace hvd::jobscripts {

namespace {

constexpr std::chrono::seconds warning_before_the_end{300};

Error misuse(std::string message) {
  return Error(ErrorCode::invalid_argument, std::move(message));
}

// Besides letters and digits. Names of jobs become names of files, and a shell reads the names of modules. No shell
// reads a line of the scheduler, but blanks and quotes have a meaning in it.
constexpr std::string_view in_job_names = "_.:,@%+=-", in_paths = "_.:,@%+=-/", in_constraints = "_.:,@%+=-/&|*[]";

Status check_word(const char* flag, const std::string& value, std::string_view marks) {
  auto is_allowed = [&](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
           marks.find(letter) != std::string_view::npos;
  };
  if (std::ranges::all_of(value, is_allowed) && !value.starts_with('-')) return {};
  return misuse(std::string(flag) + ": expected a name of letters, digits and " + std::string(marks) + ", found '" +
                value + "'");
}

Status check_words(const ScriptRequest& request) {
  HVD_RETURN_IF_ERROR(check_word("--account", request.account, in_paths));
  HVD_RETURN_IF_ERROR(check_word("--queue", request.queue, in_paths));
  HVD_RETURN_IF_ERROR(check_word("--constraint", request.constraint, in_constraints));
  HVD_RETURN_IF_ERROR(check_word("--job-name", request.job_name, in_job_names));
  for (const std::string& module : request.modules) HVD_RETURN_IF_ERROR(check_word("--modules", module, in_paths));
  auto breaks_lines = [](const std::string& word) { return word.find_first_of("\n\r") != std::string::npos; };
  auto has_a_broken_value = [&](const auto& variable) { return breaks_lines(variable.second); };
  if (breaks_lines(request.environment) || breaks_lines(request.container) || breaks_lines(request.container_mpi) ||
      std::ranges::any_of(request.command, breaks_lines) ||
      std::ranges::any_of(request.container_binds, breaks_lines) ||
      std::ranges::any_of(request.horovodrun_flags, breaks_lines) ||
      std::ranges::any_of(request.variables, has_a_broken_value))
    return misuse(
        "a command, environment, container or flag with a line break in it cannot be written into a job script; "
        "put the command into a script of its own");
  return {};
}

std::string chosen(const std::string& asked, const std::string& otherwise) {
  return asked.empty() ? otherwise : asked;
}

// Returns the name of the job if nobody gave one: the name of what is run.
std::string name_of(const std::vector<std::string>& command) {
  std::string name;
  for (const std::string& word : command) {
    if (word.starts_with('-')) continue;
    name = word.substr(word.find_last_of('/') + 1);
    if (!name.starts_with("python")) break;  // in "python train.py" the second word is the name of what is run
  }
  name = name.substr(0, name.find('.'));
  return name.empty() || !check_word("", name, in_job_names) ? "horovod" : name;
}

struct Size {
  // cpus_per_rank is 0 if neither the site nor the user gives a number
  int ranks_per_node = 0, gpus_per_node = 0, cpus_per_rank = 0;
  int ranks = 0, cpus_used = 0;  // of the job; of a node
};

// The templates for these launchers ask for CPUs by number.
bool needs_cpus(const Site& site) {
  return site.launcher() == "jsrun" || (site.scheduler == "pbs" && site.get("select").empty());
}

// Puts the products into the size.
Status multiply(Size& size, const Site& site, int nodes) {
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  std::int64_t ranks = std::int64_t{nodes} * size.ranks_per_node;
  std::int64_t cpus = std::int64_t{size.cpus_per_rank} * size.ranks_per_node;
  if (ranks > most)
    return misuse("--nodes: " + counted(nodes, "node") + " of " + counted(size.ranks_per_node, "rank") + " are " +
                  std::to_string(ranks) + " ranks, more than a job can have (" + std::to_string(most) + ")");
  if (int on_node = site.number("cpus_per_node", 0); on_node > 0 && (cpus == 0 || cpus > on_node))
    return misuse("a node of " + site.name + " has " + std::to_string(on_node) + " CPUs for jobs, too few for " +
                  std::to_string(size.ranks_per_node) + " ranks of " + std::to_string(std::max(size.cpus_per_rank, 1)) +
                  " each");
  if (cpus > most)
    return misuse("--cpus-per-rank: " + counted(size.ranks_per_node, "rank") + " of " +
                  std::to_string(size.cpus_per_rank) + " CPUs each are more than a node can have");
  size.ranks = static_cast<int>(ranks);
  size.cpus_used = static_cast<int>(cpus);
  return {};
}

Result<Size> size_of_node(const Site& site, const ScriptRequest& request) {
  Size size;
  size.gpus_per_node = request.gpus_per_node.value_or(site.number("gpus_per_node", 0));
  int usual = site.number("ranks_per_node", size.gpus_per_node);
  size.ranks_per_node =
      request.ranks_per_node.value_or(request.gpus_per_node && size.gpus_per_node > 0 ? size.gpus_per_node : usual);
  if (size.ranks_per_node == 0)
    return misuse("the site '" + site.name +
                  "' does not say how many ranks a node takes: --ranks-per-node N or "
                  "--gpus-per-node N is missing");
  if (int most = site.number("gpus_per_node", 0); most > 0 && size.gpus_per_node > most)
    return misuse("--gpus-per-node: a node of " + site.name + " has " + std::to_string(most) + " GPUs, not " +
                  std::to_string(size.gpus_per_node));
  int cpus = site.number("cpus_per_node", 0);
  size.cpus_per_rank = request.cpus_per_rank.value_or(cpus / size.ranks_per_node);
  if (cpus == 0 && size.cpus_per_rank == 0 && needs_cpus(site))
    return misuse("the site '" + site.name +
                  "' does not say how many CPUs a node has (cpus_per_node): --cpus-per-rank N is missing");
  HVD_RETURN_IF_ERROR(multiply(size, site, request.nodes));
  return size;
}

// Checks the time against the longest that the site takes for so many nodes. A queue that the user names may take jobs
// of more time than the site's own, so then only more than the site takes for any number of nodes is refused.
Status check_time(const Site& site, const ScriptRequest& request, std::chrono::seconds time) {
  const bool is_in_usual_queue = request.queue.empty();
  std::string longest = is_in_usual_queue ? site.get_for("longest", request.nodes) : site.longest_of_all();
  if (auto most = parse_duration(longest); !most || time <= *most) return {};
  if (is_in_usual_queue)
    return misuse("--time: a job of " + counted(request.nodes, "node") + " of " + site.name + " may take " + longest +
                  ", not " + request.time);
  return misuse("--time: no job of " + site.name + " may take more than " + longest + "; " + request.time +
                " were asked for");
}

// Returns the words by which the site's launcher gives each rank the cores beside its GPU; empty if the ranks are not
// one for each GPU of the node, or have another number of cores than the site's.
std::string binding_to_gpus(const Site& site, const Size& size) {
  int gpus = site.number("gpus_per_node", 0);
  bool is_full = gpus > 0 && size.gpus_per_node == gpus && size.ranks_per_node == gpus &&
                 size.cpus_per_rank == site.number("cpus_per_node", 0) / gpus;
  return is_full ? site.get("cpu_bind") : "";
}

// Puts the lists of the site and of the user into `values`, and the lines that depend on both.
Status put_lists(Values& values, const Site& site, const ScriptRequest& request, const Size& size) {
  for (const char* key : {"directive", "export", "note", "module"})
    if (auto found = site.values.find(key); found != site.values.end()) values[key] = found->second;
  std::string flags;
  // Those of a site's own launcher are not for horovodrun, which starts the ranks of an elastic job.
  const bool are_fit = !request.is_elastic || site.launcher() == "horovodrun";
  if (auto found = site.values.find("launcher_flag"); found != site.values.end() && are_fit)
    for (const std::string& flag : found->second) flags += " " + flag;
  for (const std::string& word : request.horovodrun_flags) flags += " " + quoted(word);
  values["launcher_flags"] = {flags};
  if (flags.find(" --mpi") == std::string::npos) values["asks_for_mpi"] = {"yes"};
  for (const std::string& module : request.modules) values["module"].push_back(module);
  for (const auto& [name, value] : request.variables) values["export"].push_back(name + "=" + quoted(value));
  std::string command;
  for (const std::string& word : request.command) command += (command.empty() ? "" : " ") + quoted(word);
  values["command"] = {command};
  if (!request.environment.empty()) values["environment"] = {quoted(request.environment)};
  auto container = container_words(site, request, size.gpus_per_node > 0, values["export"]);
  if (!container) return container.error();
  if (!container->empty()) values["container"] = {*container};
  return {};
}

}  // namespace

std::string quoted(const std::string& word) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,-";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  return in_shell_quotes(word);
}

Result<std::string> write_script(const Site& site, const ScriptRequest& request) {
  HVD_RETURN_IF_ERROR(check_words(request));
  if (request.command.empty())
    return misuse("the command is missing: … --jobscript " + site.scheduler + " -- python train.py");
  if (!request.constraint.empty() && !reads(site.scheduler, "constraint"))
    return misuse("--constraint: expected a scheduler that takes constraints (slurm), found " + site.scheduler +
                  "; leave --constraint out, or choose nodes by --queue or a site's 'directive'");
  if (request.nodes < 1) return misuse("--nodes: expected at least 1, found " + std::to_string(request.nodes));
  if (request.time.empty()) return misuse("--time is missing: how long the job may take, as in --time 2h");
  auto time = parse_duration(request.time);
  if (!time) return misuse("--time: " + time.error().message);
  HVD_RETURN_IF_ERROR(check_time(site, request, *time));
  if (request.is_requeued && *time <= 2 * warning_before_the_end)
    return misuse("--requeue: the job is told 5 minutes before its end, so it needs more than 10 minutes, not " +
                  request.time);
  if (request.account.empty() && site.get("account") == "required")
    return misuse("the site '" + site.name + "' charges every job to an account: --account NAME is missing");
  auto size = size_of_node(site, request);
  if (!size) return size.error();

  Values values;
  auto put = [&](const char* name, const std::string& value) {
    if (!value.empty()) values[name] = {value};
  };
  auto put_number = [&](const char* name, int value) {
    if (value > 0) values[name] = {std::to_string(value)};
  };
  put("title", chosen(site.get("title"), site.name));
  put(("launcher_is_" + site.launcher()).c_str(), "yes");
  put("select", site.get("select"));
  put("job_name", chosen(request.job_name, name_of(request.command)));
  put("account", request.account);
  put("account_flag", chosen(site.get("account_flag"), "-P"));
  put("queue", chosen(request.queue, site.get_for("queue", request.nodes)));
  put("queue_flag", site.get("queue_flag"));
  put("constraint", chosen(request.constraint, site.get("constraint")));
  put("cpu_bind", binding_to_gpus(site, *size));
  put("time", site.scheduler == "lsf" ? hours_minutes(*time) : hours_minutes_seconds(*time));
  put_number("nodes", request.nodes);
  if (request.spares >= size->ranks)
    return misuse("--spares " + std::to_string(request.spares) + " leaves no rank: the job has places for " +
                  counted(size->ranks, "rank") + " (--nodes times --ranks-per-node)");
  const int ranks = std::min(size->ranks - request.spares, request.most_ranks.value_or(size->ranks));
  if (request.least_ranks > ranks)
    return misuse("--min-np " + std::to_string(request.least_ranks) + " is more than the " + counted(ranks, "rank") +
                  " with which this job begins: --nodes times --ranks-per-node, without --spares and no more than "
                  "--max-np");
  put_number("ranks", ranks);
  put_number("places", size->ranks);  // also those of spares
  if (request.is_elastic) put("elastic", "yes");
  put_number("ranks_per_node", size->ranks_per_node);
  put_number("gpus_per_node", size->gpus_per_node);
  put_number("cpus_per_rank", size->cpus_per_rank);
  put_number("cores_per_rank", size->cpus_per_rank / site.number("cpus_per_core", 1));
  put_number("cpus_used", size->cpus_used);
  if (request.is_requeued) {
    put("requeue", "yes");
    put("max_requeues", std::to_string(request.max_requeues));
    put_number("warning_seconds", static_cast<int>(warning_before_the_end.count()));
    put_number("warning_minutes", static_cast<int>(warning_before_the_end.count() / 60));
    put_number("seconds_until_warning", static_cast<int>((*time - warning_before_the_end).count()));
  }
  HVD_RETURN_IF_ERROR(put_lists(values, site, request, *size));
  return fill_in(find_file(compiled_templates(), site.scheduler)->text, values, "templates/" + site.scheduler + ".sh");
}

}  // namespace hvd::jobscripts
