#include "launcher/agent/local_agent.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace hvd::launcher {
namespace {

[[noreturn]] void become_agent(posix::FileDescriptor stream, const AgentSettings& settings, bool gets_input) {
  ::setsid();
  ::signal(SIGPIPE, SIG_IGN);
  // The agent gives up standard output, so that a reader of our output does not have to wait for the end of the agent.
  // It keeps standard error, to report its own errors.
  posix::FileDescriptor nothing(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (nothing) ::dup2(nothing.get(), STDOUT_FILENO);
  posix::FileDescriptor no_input(gets_input ? -1 : ::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (no_input) ::dup2(no_input.get(), STDIN_FILENO);
  ::_exit(run_agent(HorovodrunChannel(std::move(stream)), settings));
}

}  // namespace

Result<LocalAgent> start_local_agent(const AgentSettings& settings, bool gets_input) {
  gets_input = gets_input && ::isatty(STDIN_FILENO) == 0;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return system_error("no connection to the agent of this machine (socketpair)", errno);
  posix::FileDescriptor ours(ends[0]), theirs(ends[1]);
  pid_t child = ::fork();
  if (child < 0) return system_error("no process for the agent (see ulimit -u)", errno);
  if (child == 0) {
    ours.reset();
    become_agent(std::move(theirs), settings, gets_input);
  }
  LocalAgent agent{child, AgentChannel(std::move(ours))};
  posix::FileDescriptor nothing(gets_input ? ::open("/dev/null", O_RDONLY | O_CLOEXEC) : -1);
  if (nothing) ::dup2(nothing.get(), STDIN_FILENO);  // the first rank has our input now
  return agent;
}

}  // namespace hvd::launcher
