#include "launcher/agent/remote_agent.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/settings/environment.hpp"
#include "base/text/shell_word.hpp"
#include "launcher/agent/agent.hpp"
#include "launcher/agent/ending.hpp"
#include "native/posix/plugins/plugin.hpp"
#include "native/posix/processes/process.hpp"
#include "native/posix/processes/signals.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

[[noreturn]] void become_agent(AgentSettings settings, posix::FileDescriptor leash) {
  ::setsid();
  ::signal(SIGPIPE, SIG_IGN);
  settings.leash = leash.get();
  // Ranks and libraries may write to the standard descriptors, so the stream of messages moves to other descriptors.
  posix::FileDescriptor input(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  posix::FileDescriptor output(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  posix::FileDescriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!input || !output || !nothing) ::_exit(1);
  ::dup2(nothing.get(), STDIN_FILENO);
  ::dup2(nothing.get(), STDOUT_FILENO);
  HorovodrunChannel channel(std::move(input), std::move(output));
  channel.greet(agent_greeting());
  ::_exit(run_agent(std::move(channel), settings));
}

// Waits until the agent has ended, and returns its wait status. On a signal that asks this process to end it closes the
// leash, and so tells the agent to end.
int watch_over(pid_t agent, posix::FileDescriptor& leash, posix::SignalReader& signals) {
  int status = 0;
  while (::waitpid(agent, &status, WNOHANG) != agent) {
    pollfd readable{signals.descriptor(), POLLIN, 0};
    ::poll(&readable, 1, -1);
    while (auto event = signals.next())
      if (event->signal != SIGCHLD) leash.reset();
  }
  return status;
}

void end_what_is_left(milliseconds grace) {
  Ending ending;
  ending.begin(SIGTERM, grace);
  while (posix::has_children()) {
    ending.step();
    int status = 0;
    if (::waitpid(-1, &status, WNOHANG) <= 0) ::poll(nullptr, 0, 20);
  }
}

}  // namespace

std::string agent_greeting() {
  return std::string("\n") + greeting_beginning + posix::plugin_stamp(0).version + "\n";
}

int run_remote_agent(milliseconds grace) {
  AgentSettings settings{{},
                         {posix::SignalState::of_this_process(), posix::descriptor_limit()},
                         grace,
                         -1,
                         Environment::of_this_process()};
  // Each rank takes four files while it starts, so the limit of open files becomes as high as it may be.
  posix::set_descriptor_limit({settings.inheritance.descriptors.hard, settings.inheritance.descriptors.hard});
  auto signals = posix::SignalReader::open({SIGCHLD, SIGINT, SIGTERM, SIGHUP});
  auto adopting = posix::become_subreaper();
  int ends[2];
  if (!signals || !adopting || ::pipe2(ends, O_CLOEXEC) != 0) {
    std::fprintf(
        stderr, "the agent cannot start: the system allows no signal descriptor, no adoption of orphans, or no pipe\n");
    return 1;
  }
  posix::FileDescriptor held(ends[0]), leash(ends[1]);
  pid_t agent = ::fork();
  if (agent < 0) {
    std::fprintf(stderr, "the agent cannot start: %s\n", system_error("fork", errno).message.c_str());
    return 1;
  }
  if (agent == 0) {
    leash.reset();
    become_agent(std::move(settings), std::move(held));
  }
  held.reset();
  // horovodrun must see when the agent ends, not when this process ends.
  ::close(STDIN_FILENO);
  ::close(STDOUT_FILENO);
  posix::fill_standard_descriptors();
  int status = watch_over(agent, leash, *signals);
  end_what_is_left(grace);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::vector<std::string> remote_agent_words(const std::string& program, milliseconds grace) {
  return {program, remote_agent_flag, std::to_string(grace.count())};
}

std::string remote_agent_command(const std::string& program, milliseconds grace) {
  return "exec " + in_shell_quotes(program) + " " + remote_agent_flag + " " + std::to_string(grace.count());
}

}  // namespace hvd::launcher
