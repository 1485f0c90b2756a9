// horovodrun: starts N copies of a program as the ranks of one job.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>

#include "base/deadline.hpp"
#include "base/error_ids.hpp"
#include "base/settings/config.hpp"
#include "bootstrap/launch/launch.hpp"
#include "launcher/agent/rank_in_image.hpp"
#include "launcher/checkpoints/command.hpp"
#include "launcher/job/job.hpp"
#include "launcher/options/check_build.hpp"
#include "launcher/options/flags.hpp"
#include "launcher/options/hosts.hpp"
#include "launcher/options/job_script.hpp"
#include "launcher/options/layers.hpp"
#include "launcher/options/manual.hpp"
#include "launcher/options/support_bundle.hpp"
#include "launcher/preflight/preflight.hpp"
#include "launcher/preflight/probe.hpp"
#include "launcher/programs.hpp"
#include "launcher/staging/staged_rank.hpp"
#include "launcher/staging/stager.hpp"
#include "launcher/staging/staging.hpp"
#include "launcher/targets/explain.hpp"
#include "launcher/targets/requeue.hpp"
#include "launcher/targets/target.hpp"
#include "native/posix/files/text_file.hpp"
#include "native/posix/plugins/plugin.hpp"
#include "native/posix/processes/process.hpp"
#include "native/posix/processes/signals.hpp"

namespace {

using namespace hvd;
using launcher::Flags;

constexpr int usage_error = 2;

// Prints a notice.
int complain(const std::string& message, int code) {
  std::fprintf(stderr, "horovodrun: %s\n", message.c_str());
  return code;
}

// Prints an error. `id` is its id in docs/errors.md, unless it has one.
int complain(Error error, int code, std::string_view id) {
  return complain(identified(std::move(error), id).text(), code);
}

Error misuse(std::string message) {
  return Error(ErrorCode::invalid_argument, std::move(message));
}

Result<std::vector<launcher::HostSlots>> read_hosts(const Flags& flags) {
  if (!flags.has("hostfile")) return launcher::parse_hosts(flags.get("hosts"));
  auto text = posix::read_text(flags.get("hostfile"));
  if (!text) return misuse("--hostfile: " + text.error().message);
  return launcher::parse_host_file(*text, flags.get("hostfile"));
}

Result<std::string> job_script(const Flags& flags) {
  std::string file = flags.get("script_site");
  if (file.find('/') == std::string::npos) return launcher::job_script(flags, std::nullopt);
  auto text = posix::read_text(file);
  if (!text) return misuse("--site: " + text.error().message);
  return launcher::job_script(flags, *text);
}

Result<Flags> read_flags(int count, char** arguments) {
  auto flags = launcher::parse_flags({arguments + 1, static_cast<std::size_t>(count - 1)});
  if (!flags || !flags->has("config_file")) return flags;
  std::string path = flags->get("config_file");
  auto text = posix::read_text(path);
  if (!text) return identified(misuse("--config-file: " + text.error().message), "HVD1002");
  if (auto applied = launcher::apply_config_file(*flags, *text, path); !applied)
    return identified(std::move(applied.error()), "HVD1002");
  return flags;
}

Result<std::chrono::milliseconds> grace_of(const Environment& environment) {
  auto seconds = number_of(environment, "HOROVOD_TERMINATION_GRACE_SECONDS");
  if (!seconds) return std::move(seconds.error());
  return milliseconds_of(*seconds);
}

Result<launcher::JobRequest> request_of(const Flags& flags, const Environment& environment) {
  std::vector<launcher::HostSlots> hosts;
  if (flags.has("hosts") || flags.has("hostfile")) {
    auto read = read_hosts(flags);
    if (!read) return read.error();
    hosts = std::move(*read);
  }
  auto grace = grace_of(environment);
  if (!grace) return grace.error();
  launcher::JobRequest request{flags,         environment,      flags.number("num_proc", 0),
                               flags.command, std::move(hosts), *grace};
  if (flags.has("num_proc")) return request;
  if (flags.has("min_num_proc")) request.ranks = flags.number("min_num_proc", 0);
  if (request.ranks > 0) return request;
  for (const launcher::HostSlots& host : request.hosts) request.ranks += host.slots;
  return request;
}

// Sets the number of ranks to the number of the job's slots if the user has not given one.
Status complete(launcher::JobRequest& request) {
  if (request.ranks > 0) return {};
  const std::string missing = "-np is missing: the number of ranks to start (horovodrun -np 4 command)";
  if (!request.around.is_a_job()) return misuse(missing);
  auto launch = bootstrap::innermost_launch(request.environment);
  if (launch && launch->size > 1)
    return misuse(missing + "; each of the " + std::to_string(launch->size) + " processes that " + launch->name +
                  " started would take all slots of the job");
  auto slots = request.around.slots();
  if (!slots) return misuse("-np is missing, and " + slots.error().message);
  request.ranks = *slots;
  return {};
}

Result<std::string> explanation(const Flags& flags, const Environment& environment) {
  auto request = request_of(flags, environment);
  if (!request) return request.error();
  if (!complete(*request)) request->ranks = 2;
  if (request->command.empty()) request->command = {"command"};
  if (flags.has("container")) {
    auto image = launcher::find_image(flags.get("container"));
    if (!image) return image.error();
    request->command = launcher::in_image(*image, "horovodrun", request->command);
  }
  return launcher::explain(*request);
}

// Makes the user's command run inside the image that the user named, if one was named.
Status put_into_image(Flags& flags, Environment& environment) {
  if (!flags.has("container")) return {};
  for (const auto& [name, value] : launcher::variables_of(flags)) environment.set(name, value);
  auto image = launcher::find_image(flags.get("container"));
  if (!image) return image.error();
  flags.set("container", image->word);
  HVD_RETURN_IF_ERROR(launcher::check_image(*image, environment));
  auto horovodrun = launcher::program_on_other_hosts(environment);
  if (!horovodrun) return horovodrun.error();
  if (!flags.command.empty()) flags.command = launcher::in_image(*image, *horovodrun, flags.command);
  return {};
}

Result<launcher::JobOptions> plan(const Flags& flags, const Environment& environment) {
  auto wanted = request_of(flags, environment);
  if (!wanted) return wanted.error();
  HVD_RETURN_IF_ERROR(complete(*wanted));
  const launcher::JobRequest& request = *wanted;
  if (flags.command.empty())
    return misuse("the command is missing: horovodrun -np " + std::to_string(request.ranks) + " command");
  auto chosen = launcher::choose_target(request);
  if (!chosen) return chosen.error();
  auto options = chosen->target->plan(request);
  if (!options) return options;
  for (const std::string& notice : launcher::unused_flags(*chosen->target, flags)) complain(notice, 0);
  options->grace = request.grace;
  options->command = flags.command;
  options->variables = launcher::variables_of(flags);
  options->verbose = flags.is_set("verbose");
  options->printer.timestamps = flags.is_set("prefix_output_with_timestamp");
  options->printer.folder = flags.get("output_filename");
  options->printer.size = options->elastic ? 0 : request.ranks;  // processes of an elastic job are admitted one by one
  return options;
}

// Returns the exit code; nothing if the job is to be started.
std::optional<int> preflight(const Flags& flags, const Environment& environment, std::span<char*> arguments) {
  const std::string mode = flags.get("preflight");
  if (mode.empty()) return std::nullopt;
  if (mode != "before" && mode != "only" && mode != "json")
    return complain(misuse("--preflight has no value, or is =only or =json, not '" + mode + "'"), usage_error,
                    "HVD1001");
  const bool is_before = mode == "before";
  if (is_before && flags.command.empty())
    return complain(misuse("the command is missing; to check and start nothing: --preflight=only"), usage_error,
                    "HVD1001");
  auto request = request_of(flags, environment);
  if (!request) return complain(request.error(), usage_error, "HVD1005");
  if (auto completed = complete(*request); !completed) return complain(completed.error(), usage_error, "HVD1005");
  auto outcome = launcher::preflight::run(*request, arguments, mode == "json");
  if (!outcome) return complain(outcome.error(), usage_error, "HVD1005");
  // Standard output belongs to the job.
  std::fputs(outcome->text.c_str(), is_before ? stderr : stdout);
  if (outcome->has_fault) return launcher::preflight::fault_found;
  return is_before ? std::nullopt : std::optional(0);
}

// Prints what Horovod's launcher prints with --verbose. Scripts look for these lines.
void print_verbose_start(const launcher::JobOptions& options) {
  std::string remote;
  for (const launcher::HostPlan& host : options.hosts)
    if (!host.reach.empty()) remote += (remote.empty() ? "" : " ") + host.name;
  std::printf("Filtering local host names.\nRemote host found: %s\n", remote.c_str());
  if (remote.empty())
    std::printf("All hosts are local, finding the interfaces with address 127.0.0.1\nLocal interface found lo\n");
  std::fflush(stdout);
}

int write_support_bundle(const Flags& flags, const Environment& environment, const launcher::Layers& layers) {
  auto told = [](Result<std::string> text) { return text ? *text : text.error().message + "\n"; };
  auto files = launcher::facts_of_this_machine(flags, layers);
  files.push_back({"versions.txt", std::string("Horovod ") + posix::plugin_stamp(0).version + "\n" +
                                       launcher::check_build_text(environment, true)});
  files.push_back({"explain.txt", told(explanation(flags, environment))});
  files.push_back({"settings.txt", launcher::show_config(flags, layers, false)});
  files.push_back({"settings.json", launcher::show_config(flags, layers, true)});
  Flags job = flags;
  if (job.command.empty()) job.command = {"command"};
  auto options = plan(job, environment);
  std::string command;
  for (const std::string& word : flags.command) command += " " + word;
  std::string map = options && !options->site ? launcher::map_of_ranks(options->placements)
                    : options                 ? "the site's launcher places the ranks: see explain.txt\n"
                                              : options.error().message + "\n";
  files.push_back({"ranks.txt", "command:" + command + "\n" + map});
  auto written = launcher::write_bundle(std::move(files), flags.get("support_bundle"), environment);
  if (!written) return complain(written.error(), 1, "HVD1010");
  return std::printf("%s\n", written->c_str()), 0;
}

// Prints what the user only asked to be told. Returns the exit code, or nullopt if there is a job to run.
std::optional<int> print_what_was_asked(const Flags& flags, const Environment& environment,
                                        const launcher::Layers& layers) {
  if (flags.has("help")) return std::fputs(launcher::help_text().c_str(), stdout), 0;
  if (flags.has("version")) return std::printf("%s\n", posix::plugin_stamp(0).version), 0;
  if (flags.has("manual")) return std::fputs(launcher::manual_page().c_str(), stdout), 0;
  if (flags.has("completion")) {
    auto text = launcher::completion_for(flags.get("completion"));
    if (!text) return complain(text.error(), usage_error, "HVD1001");
    return std::fputs(text->c_str(), stdout), 0;
  }
  if (flags.has("check_build"))
    return std::fputs(launcher::check_build_text(environment, flags.is_set("verbose")).c_str(), stdout), 0;
  if (flags.has("show_config"))
    return std::fputs(launcher::show_config(flags, layers, flags.has("json")).c_str(), stdout), 0;
  if (flags.has("support_bundle")) return write_support_bundle(flags, environment, layers);
  if (flags.has("checkpoint"))
    return launcher::run_checkpoint_command(flags.get("checkpoint"), flags.command, environment);
  if (!flags.has("explain") && !flags.has("jobscript")) return std::nullopt;
  auto text = flags.has("jobscript") ? job_script(flags) : explanation(flags, environment);
  if (!text) return complain(text.error(), usage_error, flags.has("jobscript") ? "HVD1009" : "HVD1005");
  return std::fputs(text->c_str(), stdout), 0;
}

// Finds the user's program. `code` gets the exit code for a program that cannot be found.
Status find_program(launcher::JobOptions& options, const Environment& environment, int& code) {
  if (options.site) return {};  // the hosts look for the command; the agent looks for the site's launcher
  options.program = options.command[0];
  if (options.is_on_several_machines()) return {};  // every host looks for itself
  auto program = posix::find_program(options.program, posix::search_path(environment), code);
  if (!program) return program.error();
  options.program = std::move(*program);
  return {};
}

int put_back(const Flags& flags, const Environment& environment) {
  launcher::Requeuing how;
  auto most = number_of(environment, "HOROVOD_MAX_REQUEUES");
  if (!most && !flags.has("max_requeues"))
    return complain("the job is not put back into the queue: " + most.error().message, launcher::again_code);
  how.most = flags.number("max_requeues", most ? static_cast<int>(*most) : 0);
  how.counters = ".";
  how.run = &launcher::run_requeue_command;
  launcher::Requeued result = launcher::requeue(launcher::JobAround(environment), how);
  return complain(result.text, result.exit_code);
}

// True for the horovodrun that starts probes or stagers instead of ranks. It ignores flags that concern only the job
// itself.
bool is_inner_run(const Flags& flags) {
  constexpr std::string_view inner[] = {launcher::preflight::probe_flag, launcher::staging::stager_flag,
                                        launcher::staging::staged_rank_flag};
  return flags.command.size() > 1 && std::ranges::find(inner, flags.command[1]) != std::end(inner);
}

void drop_job_only_flags(Flags& flags) {
  for (const launcher::FlagRow& row : launcher::flag_rows())
    if (row.use == launcher::Use::whole_job_only) flags.forget(row.name);
  flags.notices.clear();
}

// Returns an exit code only if the environment could not be staged.
std::optional<int> stage(Flags& flags, const Environment& environment, std::span<char* const> arguments) {
  if (!flags.has("stage")) return std::nullopt;
  if (flags.command.empty()) return complain(misuse("the command is missing"), usage_error, "HVD1001");
  auto staged = launcher::staging::stage(flags, environment, arguments);
  if (staged) return std::nullopt;
  const bool is_misuse = !flags.has("stage_job");
  return complain(staged.error(), is_misuse ? usage_error : 1, "HVD1012");
}

int run(int count, char** arguments) {
  Environment environment = Environment::of_this_process();
  auto flags = read_flags(count, arguments);
  if (!flags) return complain(flags.error(), usage_error, "HVD1001");
  // Help is printed before files are read, because a faulty file may be the reason why the user needs help.
  auto asks_for = [&](const char* name) { return flags->has(name); };
  constexpr const char* without_files[] = {"help", "version", "manual", "completion"};
  bool needs_files = std::none_of(std::begin(without_files), std::end(without_files), asks_for);
  auto layers = needs_files ? launcher::lay_files_under(*flags, environment) : launcher::Layers{};
  if (is_inner_run(*flags)) drop_job_only_flags(*flags);
  for (const std::string& notice : flags->notices) complain(notice, 0);
  if (!layers) return complain(layers.error(), usage_error, "HVD1003");
  if (auto told = print_what_was_asked(*flags, environment, *layers)) return *told;

  const std::span<char*> own(arguments + 1, static_cast<std::size_t>(count - 1) - flags->command.size());
  if (auto ended = stage(*flags, environment, own)) return *ended;
  if (auto ended = preflight(*flags, environment, own)) return *ended;
  if (auto put = put_into_image(*flags, environment); !put) return complain(put.error(), usage_error, "HVD1007");
  auto options = plan(*flags, environment);
  if (!options) return complain(options.error(), usage_error, "HVD1005");
  int code = 0;
  if (auto found = find_program(*options, environment, code); !found) return complain(found.error(), code, "HVD1006");
  if (options->verbose) {
    print_verbose_start(*options);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    options->variables["HOROVOD_STARTED_AT"] = std::to_string(std::chrono::duration<double>(now).count());
  }
  launcher::JobEnd end = launcher::run_job(*options, environment);
  if (flags->is_set("stage_remove") && flags->has("stage_digest") && end.exit_code != launcher::again_code)
    if (auto removed = launcher::staging::remove_staged(*flags, environment, own); !removed)
      complain(removed.error().message, 0);
  // A shell that runs us in a loop must see that a signal ended us. Otherwise Ctrl-C would end only this round of the
  // loop.
  if (end.by_signal != 0) posix::end_by_signal(end.by_signal);
  return end.exit_code == launcher::again_code ? put_back(*flags, environment) : end.exit_code;
}

}  // namespace

// The sanitizers call these functions, if the program has sanitizers. libpmix keeps what its initialisation allocates,
// and what libmunge allocates for it where munged runs. Of some of its calls only vasprintf is seen, which our code
// never calls. It is not compiled for the thread sanitizer, which therefore does not see its locks.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {
__attribute__((visibility("default"))) const char* __lsan_default_suppressions();
__attribute__((visibility("default"))) const char* __lsan_default_options();
__attribute__((visibility("default"))) const char* __tsan_default_suppressions();
const char* __lsan_default_suppressions() {
  return "leak:libpmix\nleak:vasprintf\nleak:libmunge\n";
}
const char* __lsan_default_options() {
  return "print_suppressions=0";
}
const char* __tsan_default_suppressions() {
  return "race:libpmix.so\nmutex:libpmix.so\ndeadlock:libpmix.so\nthread:libpmix.so";
}
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

int main(int count, char** arguments) {
  posix::fill_standard_descriptors();
  if (auto code = launcher::run_inner_program(count, arguments)) return *code;
  return run(count, arguments);
}
