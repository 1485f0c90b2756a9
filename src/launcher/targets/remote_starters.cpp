#include "launcher/targets/remote_starters.hpp"

#include "launcher/agent/called_agent.hpp"
#include "native/posix/processes/process.hpp"

namespace hvd::launcher {
namespace {

// The programs that do not carry messages, and the line that does (called_agent.hpp).
struct Line {
  std::string_view program;
  const char* flag;
};
constexpr Line lines[] = {{"pbsdsh", pbsdsh_line_flag}, {"srun", srun_line_flag}};

}  // namespace

std::optional<RemoteStarter> remote_starter(const JobAround& around, const Environment& environment) {
  const std::vector<std::string>& command = around.scheduler().traits().remote_starter;
  int code = 0;
  if (command.empty() || !posix::find_program(command[0], posix::search_path(environment), code)) return std::nullopt;
  RemoteStarter starter{command[0], command};
  for (const Line& line : lines) {
    if (line.program != command[0]) continue;
    starter.carries_messages = false;
    auto value_of = [&](const char* name) { return environment.get(name).value_or("-"); };
    starter.words = {"/proc/self/exe", line.flag, value_of("HOROVOD_GLOO_IFACE"), value_of("HOROVOD_PORT_RANGE"),
                     value_of("HOROVOD_MAX_REQUEUES")};
    starter.words.insert(starter.words.end(), command.begin() + 1, command.end());
  }
  return starter;
}

}  // namespace hvd::launcher
