// Grid Engine has a file with one line per host. A job without a parallel environment has one slot, on this host.
#include <algorithm>
#include <sstream>

#include "base/counted.hpp"
#include "base/text/number.hpp"
#include "schedulers/grammar/comparison.hpp"
#include "schedulers/grammar/durations.hpp"
#include "schedulers/grammar/host_lists.hpp"
#include "schedulers/scheduler.hpp"

namespace hvd::schedulers {
namespace {

// Reads lines "n1 4 all.q@n1 <NULL>". A host that gets slots from several queues has several lines.
Result<std::vector<Host>> hosts_of_environment(const std::string& text) {
  std::vector<Host> hosts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, number;
    if (!(words >> name)) continue;
    auto slots = words >> number ? number_in<int>(number) : std::nullopt;
    if (!is_host_name(name) || !slots || *slots < 1 || *slots > most_slots)
      return Error(ErrorCode::invalid_argument,
                   "the line '" + line + "' is not 'host slots queue processors': is the file cut off?");
    auto same = std::ranges::find(hosts, name, &Host::name);
    if (same == hosts.end()) hosts.push_back({name, *slots, *slots});
    else if (same->slots + *slots > most_slots)
      return Error(ErrorCode::invalid_argument, "the host '" + name + "' has too many slots");
    else same->cores = same->slots += *slots;
  }
  if (hosts.empty()) return Error(ErrorCode::invalid_argument, "expected at least one host, found none");
  return hosts;
}

class GridEngine final : public Scheduler {
 public:
  GridEngine()
      : Scheduler({.name = "Grid Engine",
                   .job_variable = "JOB_ID",
                   .prefixes = {"SGE_", "PE_", "JOB_", "NSLOTS", "NHOSTS"},
                   .place = Place::equal,
                   .output_files = {"*.o[0-9]", "*.e[0-9]", "*.o[0-9]*[0-9]", "*.e[0-9]*[0-9]"},
                   .remote_starter = {{"qrsh", "-inherit", "-noshell"}, Messages::by_command}}) {}

  std::optional<std::string> detected(const Environment& environment) const override {
    auto job = environment.get("JOB_ID");
    if (!job || job->empty() || !environment.has("SGE_TASK_ID")) return std::nullopt;
    return "JOB_ID=" + *job + " and SGE_TASK_ID are set";
  }

  std::string job(const Sources& sources) const override {
    const Environment& environment = sources.environment;
    std::string task = environment.get("SGE_TASK_ID").value_or("undefined");
    return environment.get("JOB_ID").value_or("") + (number_in<int>(task) ? "." + task : "");
  }

  Result<Allocation> allocation(const Sources& sources) const override {
    const Environment& environment = sources.environment;
    Allocation found;
    found.job = job(sources);
    auto path = environment.get("PE_HOSTFILE");
    if (!path) {
      found.source = "JOB_ID, without PE_HOSTFILE";
      found.hosts.push_back({"localhost", 1, 1});
      return found;
    }
    found.source = "PE_HOSTFILE=" + *path;
    auto text = sources.read_file(*path);
    auto hosts = text ? hosts_of_environment(*text) : Result<std::vector<Host>>(std::move(text.error()));
    if (!hosts) return in(found.source, std::move(hosts.error()));
    found.hosts = std::move(*hosts);
    const int slots = slots_of(found.hosts), count = static_cast<int>(found.hosts.size());
    compare_number(found, environment, "NSLOTS", slots, found.source + " has " + counted(slots, "slot"));
    compare_number(found, environment, "NHOSTS", count, found.source + " has " + counted(count, "host"));
    return found;
  }

  std::optional<std::chrono::seconds> time_left(const Sources& sources) const override {
    std::string told = sources.ask({"qstat", "-j", sources.environment.get("JOB_ID").value_or("")});
    auto value = [&](const std::string& name) {
      std::size_t at = told.find(name);
      if (at == std::string::npos) return std::string();
      at += name.size();
      return told.substr(at, told.find_first_of(", \n", at) - at);
    };
    auto limit = number_in<std::int64_t>(value("h_rt="));
    auto used = duration_in(value("wallclock="));
    if (!limit || *limit < 0 || !used) return std::nullopt;  // older versions do not tell how long the job has run
    return std::max(std::chrono::seconds(0), std::chrono::seconds(*limit) - *used);
  }

  // Grid Engine's shepherd requeues a job that exits with this code.
  Requeue requeue(const Sources&) const override { return {{}, 99}; }

  std::string how_to_ask_for(int slots) const override {
    return "qsub -pe ENVIRONMENT " + std::to_string(slots) + " (qconf -spl lists the environments)";
  }
};

}  // namespace

std::unique_ptr<Scheduler> make_sge() {
  return std::make_unique<GridEngine>();
}

}  // namespace hvd::schedulers
