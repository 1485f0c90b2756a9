#include "launcher/targets/remote_starters.hpp"

#include "launcher/agent/called_agent.hpp"
#include "native/posix/processes/process.hpp"

namespace hvd::launcher {
namespace {

struct Row {
  const char* scheduler;  // name of the scheduler in the registry
  const char* program;
  std::vector<std::string> options;
  const char* line_flag = nullptr;  // of the line that carries messages, if the command does not (called_agent.hpp)
};

const Row rows[] = {
    {"lsf", "blaunch", {}},
    {"sge", "qrsh", {"-inherit", "-noshell"}},
    {"pbs", "pbsdsh", {}, pbsdsh_line_flag},
    {"slurm", "srun", {}, srun_line_flag},
};

}  // namespace

std::optional<RemoteStarter> remote_starter(const JobAround& around, const Environment& environment) {
  for (const Row& row : rows) {
    int code = 0;
    if (!around.is_of(row.scheduler) || !posix::find_program(row.program, posix::search_path(environment), code))
      continue;
    RemoteStarter starter{row.program, {row.program}, row.line_flag == nullptr};
    if (row.line_flag != nullptr)
      starter.words = {"/proc/self/exe", row.line_flag, environment.get("HOROVOD_GLOO_IFACE").value_or("-"),
                       environment.get("HOROVOD_PORT_RANGE").value_or("-"),
                       environment.get("HOROVOD_MAX_REQUEUES").value_or("-")};
    starter.words.insert(starter.words.end(), row.options.begin(), row.options.end());
    return starter;
  }
  return std::nullopt;
}

}  // namespace hvd::launcher
