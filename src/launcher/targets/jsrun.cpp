// A plan with jsrun, inside a job of LSF on a machine where JSM starts jobs (Summit and similar machines). The ranks
// find each other by JSM's PMIx.
#include <algorithm>

#include "launcher/targets/dialects.hpp"
#include "launcher/targets/jsrun_layout.hpp"
#include "launcher/targets/mpi_command.hpp"
#include "launcher/targets/target.hpp"
#include "native/posix/processes/process.hpp"
#include "topology/machine.hpp"

namespace hvd::launcher {
namespace {

std::optional<std::string> find_jsrun(const Environment& environment) {
  int code = 0;
  auto program =
      posix::find_program(bootstrap::row_of(bootstrap::Launcher::jsm).program, posix::search_path(environment), code);
  return program ? std::optional(*program) : std::nullopt;
}

std::optional<std::string> applies(const JobRequest& request) {
  if (request.flags.is_set("use_jsrun")) return "--jsrun";
  if (!request.around.is_of("lsf") || !is_for_the_whole_job(request)) return std::nullopt;
  if (!find_jsrun(request.environment)) return std::nullopt;
  return request.around.evidence() + " and jsrun is there: this is inside a job of LSF with JSM";
}

// Returns the number for this machine. The launch node is a machine like the compute nodes.
int threads_per_core(const Environment& environment) {
  std::vector<std::string> notices;
  auto machine = topology::read_machine(environment, notices);
  if (!machine || machine->cores.empty()) return 1;
  return std::max(1, machine->cores.front().cpus.count());
}

// Returns the words that say where the ranks go: the user's own words, an explicit resource file, or plain resource
// sets.
Result<std::vector<std::string>> place_by(const JobRequest& request, SiteLauncher& site) {
  if (request.flags.has("binding_args")) return split_words(request.flags.get("binding_args"));
  auto hosts = hosts_with_ranks(request);
  if (!hosts) return hosts.error();
  const auto& allocation = request.around.allocation();
  if (!allocation) return allocation.error();
  if (request.flags.is_set("jsrun_erf")) {
    site.host_file = explicit_resources(*hosts, *allocation, threads_per_core(request.environment));
    return std::vector<std::string>{"--erf_input", host_file_word};
  }
  if (!request.hosts.empty())
    return Error(ErrorCode::unsupported,
                 "-H: jsrun takes the names of hosts only from an explicit resource file: add --jsrun-erf, or leave "
                 "-H out");
  return resource_sets(*hosts, *allocation);
}

// Spectrum MPI's library in the ranks fails at its hook for CUDA if the program has no Spectrum MPI, or calls CUDA
// before MPI_Init. Therefore the hook is switched off, unless the user asks for it (-gpu).
std::string smpi_arguments(const JobRequest& request) {
  std::string text = request.flags.get("mpi_args");
  const std::vector<std::string> words = split_words(text);
  bool chooses = std::ranges::any_of(words, [](const std::string& word) {
    return word == "-gpu" || word == "-disable_gpu_hooks" || word == "off" || word == "none";
  });
  if (request.flags.is_set("tcp_flag")) text = "-tcp" + (text.empty() ? "" : " " + text);
  if (!chooses) text = "-disable_gpu_hooks" + (text.empty() ? "" : " " + text);
  return text;
}

Result<JobOptions> plan(const JobRequest& request) {
  auto program = find_jsrun(request.environment);
  if (!program)
    return Error(ErrorCode::unsupported,
                 "--jsrun: there is no jsrun along PATH; where LSF has no JSM, leave --jsrun out");
  SiteLauncher site;
  site.launcher = bootstrap::Launcher::jsm;
  site.dialect = &dialect_of_jsrun;
  site.unset = {"TMPDIR"};  // JSM's daemons fail to start if TMPDIR differs from what they know
  site.command = {*program};
  auto where = place_by(request, site);
  if (!where) return where.error();
  auto add = [&](const std::vector<std::string>& words) {
    site.command.insert(site.command.end(), words.begin(), words.end());
  };
  add(*where);
  // JSM labels every line, so that lines of different ranks are not mixed.
  add({"--stdio_mode", "prepended", "--exit_on_error", "1", "--smpiargs", smpi_arguments(request)});
  return plan_with_keepers(request, std::move(site));
}

WayToMeet way(const JobOptions&, const Environment& environment) {
  WayToMeet found{"pmix", "JSM serves PMIx, and our plugin and libpmix open here"};
  if (!can_use_pmix(environment, &found.why_no_pmix)) found = {"none", "JSM serves PMIx alone", found.why_no_pmix};
  return found;
}

}  // namespace

const Target jsrun_target{
    "jsrun", &applies, &plan, &way, {"jsrun_erf mpi_args binding_args", "where jsrun starts the ranks"}};

}  // namespace hvd::launcher
