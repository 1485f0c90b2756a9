#include "launcher/targets/remote_starters.hpp"

#include "launcher/agent/called_agent.hpp"
#include "native/posix/processes/process.hpp"

namespace hvd::launcher {
namespace {

// Returns the flag of the line that carries messages (called_agent.hpp); null if the command itself carries them.
const char* line_of(schedulers::Messages messages) {
  switch (messages) {
    case schedulers::Messages::by_command: break;
    case schedulers::Messages::by_pbsdsh_line: return pbsdsh_line_flag;
    case schedulers::Messages::by_srun_line: return srun_line_flag;
  }
  return nullptr;
}

}  // namespace

std::optional<RemoteStarter> remote_starter(const JobAround& around, const Environment& environment) {
  const auto& [command, messages] = around.scheduler().traits().remote_starter;
  int code = 0;
  if (command.empty() || !posix::find_program(command[0], posix::search_path(environment), code)) return std::nullopt;
  RemoteStarter starter{command[0], command};
  if (const char* line = line_of(messages)) {
    starter.carries_messages = false;
    auto value_of = [&](const char* name) { return environment.get(name).value_or("-"); };
    starter.words = {"/proc/self/exe", line, value_of("HOROVOD_GLOO_IFACE"), value_of("HOROVOD_PORT_RANGE"),
                     value_of("HOROVOD_MAX_REQUEUES")};
    starter.words.insert(starter.words.end(), command.begin() + 1, command.end());
  }
  return starter;
}

}  // namespace hvd::launcher
