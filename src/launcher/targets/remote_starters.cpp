#include "launcher/targets/remote_starters.hpp"

#include "launcher/agent/called_agent.hpp"
#include "native/posix/processes/process.hpp"

namespace hvd::launcher {
namespace {

struct Row {
  const char* scheduler;  // name of the scheduler in the registry
  const char* program;
  std::vector<std::string> options;
  bool carries_messages = true;  // false if tasks of the command have no standard input, and their output goes
                                 // elsewhere
};

const Row rows[] = {
    {"lsf", "blaunch", {}},
    {"sge", "qrsh", {"-inherit", "-noshell"}},
    {"pbs", "pbsdsh", {}, false},
};

}  // namespace

std::optional<RemoteStarter> remote_starter(const JobAround& around, const Environment& environment) {
  for (const Row& row : rows) {
    int code = 0;
    if (!around.is_of(row.scheduler) || !posix::find_program(row.program, posix::search_path(environment), code))
      continue;
    RemoteStarter starter{row.program, {row.program}, row.carries_messages};
    if (!row.carries_messages)
      starter.words = {"/proc/self/exe", pbsdsh_line_flag, environment.get("HOROVOD_GLOO_IFACE").value_or("-"),
                       environment.get("HOROVOD_PORT_RANGE").value_or("-")};
    starter.words.insert(starter.words.end(), row.options.begin(), row.options.end());
    return starter;
  }
  return std::nullopt;
}

}  // namespace hvd::launcher
