#include "launcher/targets/elastic_request.hpp"

#include <memory>
#include <optional>
#include <string>

#include "base/settings/config.hpp"
#include "base/text/comma_list.hpp"
#include "base/text/number.hpp"
#include "base/text/trimmed.hpp"
#include "native/posix/processes/ask_program.hpp"
#include "schedulers/slurm/batch_script.hpp"

namespace hvd::launcher {
namespace {

Error misuse(std::string message) {
  return Error(ErrorCode::invalid_argument, std::move(message));
}

Result<std::optional<CooldownRange>> cooldown_of(const Flags& flags) {
  if (!flags.has("cooldown_range")) return std::optional<CooldownRange>();
  const auto bounds = items_of(flags.get("cooldown_range"));
  auto lower = number_in<int>(bounds.empty() ? "" : bounds.front());
  auto upper = number_in<int>(bounds.empty() ? "" : bounds.back());
  if (!lower || !upper || *lower < 1 || *upper > 3600 || *lower > *upper)
    return misuse(
        "--blacklist-cooldown-range: expected two numbers of seconds from 1 to 3600, the lower one first; found " +
        flags.get("cooldown_range"));
  return std::optional(CooldownRange{std::chrono::seconds(*lower), std::chrono::seconds(*upper)});
}

int spares_of(const Flags& flags) {
  if (flags.get("spares") == "auto") return flags.has("max_num_proc") ? Membership::spares_on_all_slots : 0;
  return number_in<int>(flags.get("spares")).value_or(0);
}

// What the ranks would take for a way to meet that cannot be used, or for an MPI.
Status check_environment(const JobRequest& request) {
  const std::string bootstrap = request.environment.get("HOROVOD_BOOTSTRAP").value_or("");
  if (!bootstrap.empty() && bootstrap != "assigned")
    return misuse("HOROVOD_BOOTSTRAP=" + bootstrap +
                  ": in an elastic job the ranks meet by what horovodrun assigns; unset it");
  const std::string mpi = request.environment.get("HOROVOD_MPI").value_or("");
  if (!trimmed(mpi).empty() && !means_the_same("HOROVOD_MPI", mpi, "none"))
    return misuse(
        "HOROVOD_MPI=" + mpi +
        " in an elastic job: a process that ends takes all of its MPI job with it. Unset HOROVOD_MPI, or leave "
        "out --min-np and go on from checkpoints");
  return {};
}

}  // namespace

bool is_elastic(const Flags& flags) {
  return flags.has("min_num_proc") || flags.has("host_discovery_script");
}

Result<Membership::Settings> elastic_settings(const JobRequest& request) {
  const Flags& flags = request.flags;
  HVD_RETURN_IF_ERROR(check_environment(request));
  Membership::Settings settings;
  settings.first = request.ranks;
  settings.least = flags.number("min_num_proc", request.ranks);
  settings.most = flags.number("max_num_proc", settings.most);
  settings.spares = spares_of(flags);
  // With spares the other slots are theirs, and not those of more ranks.
  if (settings.spares > 0 && !flags.has("max_num_proc")) settings.most = settings.first;
  if (settings.least > settings.first)
    return misuse("--min-np " + std::to_string(settings.least) + " is more than -np " + std::to_string(settings.first));
  if (settings.most < settings.first)
    return misuse("--max-np " + std::to_string(settings.most) + " is less than -np " + std::to_string(settings.first));
  auto seconds = number_of(request.environment, "HOROVOD_ELASTIC_TIMEOUT");
  if (!seconds) return std::move(seconds.error());
  if (flags.has("elastic_timeout")) *seconds = flags.number("elastic_timeout", 0);
  settings.timeout = milliseconds_of(*seconds);
  if (flags.has("reset_limit")) settings.reset_limit = flags.number("reset_limit", 0);
  auto cooldown = cooldown_of(flags);
  if (!cooldown) return cooldown.error();
  settings.cooldown = *cooldown;
  settings.are_hosts_fixed = !flags.has("host_discovery_script");
  std::vector<std::string> warnings;  // the ranks print them
  auto config = Config::from(with_flags(request), warnings);
  if (!config) return std::move(config.error());
  if (!config->stall_check_disable) settings.report_every = milliseconds_of(config->stall_check_time_s);
  return settings;
}

std::function<std::string()> question_about_job_around(const JobRequest& request) {
  const std::string job = request.around.is_of("slurm") ? schedulers::own_job_of_slurm(request.environment) : "";
  if (job.empty()) return {};
  // A shell may still have the variables of a job that has ended before.
  auto had_ended_before = std::make_shared<std::optional<bool>>();
  return [job, had_ended_before]() -> std::string {
    if (had_ended_before->value_or(false)) return "";
    const std::string shown = posix::answer_of(schedulers::question_about_job(job), std::chrono::seconds(20),
                                               /*also_errors=*/false);
    const bool has_ended = schedulers::has_job_ended(shown);
    if (!*had_ended_before) *had_ended_before = has_ended;
    return has_ended && !**had_ended_before ? "Slurm has ended the job " + job + ": this job ends with it" : "";
  };
}

Error not_elastic(const Target& target, const std::string& why) {
  return Error(ErrorCode::unsupported,
               std::string("--min-np: the ranks of an elastic job are started by agents of horovodrun, but here ") +
                   target.name + " is used (" + why +
                   "), whose launcher ends all ranks with the first that fails. --gloo starts agents over ssh, where "
                   "that leads to the hosts; else leave out --min-np, write checkpoints and let the job be requeued "
                   "(docs/checkpoints.md)");
}

}  // namespace hvd::launcher
