#include "launcher/job/host_link.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launcher/agent/remote_agent.hpp"
#include "native/posix/plugins/plugin.hpp"
#include "native/posix/processes/process.hpp"

namespace hvd::launcher {
namespace {

[[noreturn]] void become_command(const std::vector<std::string>& command, const Inheritance& inheritance, pid_t parent,
                                 int stream, int errors) {
  ::setsid();
  if (!posix::die_with_parent(SIGTERM, parent)) ::_exit(128 + SIGTERM);
  ::dup2(stream, STDIN_FILENO);
  ::dup2(stream, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix::set_descriptor_limit(inheritance.descriptors);
  posix::restore_signals(inheritance.signals);
  ::execvp(words[0], words.data());
  std::string complaint = system_error(command[0] + " cannot be executed", errno).message + "\n";
  (void)!::write(STDERR_FILENO, complaint.data(), complaint.size());
  ::_exit(255);
}

// Joins the lines of a text and leaves out blank ones. If there are many lines, only the last ones are returned.
std::string end_in_one_line(const std::string& text) {
  constexpr std::size_t longest = 600;
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) result += (result.empty() ? "" : " / ") + line;
    at = end + 1;
  }
  return result.size() > longest ? "… " + result.substr(result.size() - longest) : result;
}

}  // namespace

void HostLink::send(const Order& order) {
  if (is_waiting()) return;  // there is no agent yet
  channel.send(order);
  channel.flush();
}

void HostLink::note(const Report& report) {
  if (const auto* ready = std::get_if<Ready>(&report)) {
    state = State::ready;
    node_id = ready->node_id;
  }
  if (const auto* output = std::get_if<Output>(&report))
    owed_credit += static_cast<std::uint32_t>(output->bytes.size());
  if (std::holds_alternative<Answered>(report)) was_asked = false;
  if (std::holds_alternative<AllEnded>(report)) be_gone();
}

void HostLink::reap() {
  if (process <= 0 || ::waitpid(process, &wait_status, WNOHANG) != process) return;
  process = 0;
  (void)channel.pump();
  (void)read_complaints();
}

// The command leads a session (become_command), except for an instant after its start.
void HostLink::signal_way(int signal) const {
  if (process <= 0) return;
  if (is_here || ::kill(-process, signal) != 0) ::kill(process, signal);
}

std::vector<std::string> HostLink::read_complaints() {
  constexpr std::size_t most = 64 << 10;
  char chunk[4096];
  while (errors) {
    ssize_t count = ::read(errors.get(), chunk, sizeof chunk);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0) errors.reset();
    else complaints.append(chunk, static_cast<std::size_t>(count));
    if (complaints.size() > most) complaints.erase(0, complaints.size() - most);
  }
  std::vector<std::string> lines;
  if (state != State::ready) return lines;
  for (std::size_t end; (end = complaints.find('\n')) != std::string::npos; complaints.erase(0, end + 1))
    if (end > 0) lines.push_back(complaints.substr(0, end));
  return lines;
}

std::string HostLink::how_to_try() const {
  return trial.empty() ? "`ssh " + name + " true`" : trial;
}

std::string HostLink::why_not(const std::string& program) const {
  if (is_waiting()) return "there was no time left to reach for it, since others did not answer";
  std::string said = end_in_one_line(complaints);
  std::string said_so = said.empty() ? "" : " (" + said + ")";
  std::string other = channel.other_greeting(greeting_beginning);
  if (!other.empty())
    return "another version of Horovod is there: \"" + other + "\", here is version " + posix::plugin_stamp(0).version +
           ": install the same on all hosts";
  int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
  if (process == 0 && (code == 127 || code == 126))
    return "the program " + program + " cannot be executed there" + said_so +
           ": Horovod must be installed on every host at the same path, or HOROVOD_REMOTE_PROGRAM must name it";
  if (said.find("Host key verification failed") != std::string::npos)
    return "its host key is not known" + said_so + ": log in once with ssh " + name +
           ", or set StrictHostKeyChecking for it in ~/.ssh/config";
  if (said.find("Permission denied") != std::string::npos)
    return "it does not let us in without a password" + said_so + ": have a key for it (ssh-copy-id " + name +
           ", or --ssh-identity-file)";
  if (process == 0 && code == 255)
    return "it cannot be reached" + said_so + ": check its name and that " + how_to_try() + " works from here";
  if (process == 0) return "what was started there ended with code " + std::to_string(code) + said_so;
  return "it does not answer" + said_so + ": check that " + how_to_try() + " works from here";
}

std::string HostLink::why_not_gone(std::chrono::milliseconds waited) const {
  return "processes of the job" + (is_here ? std::string() : " on host " + name) + " could not be ended within " +
         std::to_string(waited.count() / 1000) + " s (they hang in the kernel?); the agent" +
         (is_here ? " (process " + std::to_string(process) + ")" : " there") + " goes on trying";
}

Result<HostLink> reach_host(const std::string& name, const std::vector<std::string>& command,
                            const Inheritance& inheritance) {
  int stream[2], errors[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream) != 0)
    return system_error("no connection to the command that leads to " + name + " (socketpair)", errno);
  posix::FileDescriptor ours(stream[0]), theirs(stream[1]);
  if (::pipe2(errors, O_CLOEXEC) != 0)
    return system_error("no connection to the command that leads to " + name + " (pipe)", errno);
  posix::FileDescriptor errors_read(errors[0]), errors_write(errors[1]);
  pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) return system_error("no process for the connection to " + name + " (see ulimit -u)", errno);
  if (child == 0) become_command(command, inheritance, parent, theirs.get(), errors_write.get());
  ::fcntl(errors_read.get(), F_SETFL, O_NONBLOCK);
  HostLink link;
  link.name = name;
  link.process = child;
  link.channel = AgentChannel(std::move(ours));
  link.channel.expect_greeting(agent_greeting());
  link.errors = std::move(errors_read);
  return link;
}

}  // namespace hvd::launcher
