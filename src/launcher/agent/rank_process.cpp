#include "launcher/agent/rank_process.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "native/posix/processes/process.hpp"

namespace hvd::launcher {
namespace {

struct Pipe {
  posix::FileDescriptor read, write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("no pipe for a rank's output (see ulimit -n)", errno);
  return Pipe{posix::FileDescriptor(ends[0]), posix::FileDescriptor(ends[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& list) {
  std::vector<char*> result;
  result.reserve(list.size() + 1);
  for (const std::string& text : list) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

struct RankEnds {
  int input, output, errors;  // standard input, output and error; -1 for input that does not come through a pipe
};

// The child's side of the fork. Returns only if the program could not be executed.
StartFailure become_rank(const StartRank& order, const posix::CpuMask& cpus, const Inheritance& inheritance,
                         pid_t agent, const RankEnds& ends) {
  ::setpgid(0, 0);
  // If the agent and horovodrun are killed at the same moment, the kernel at least sends this signal to the rank.
  if (!posix::die_with_parent(SIGTERM, agent)) ::_exit(128 + SIGTERM);
  if (ends.input >= 0) {
    ::dup2(ends.input, STDIN_FILENO);
  } else if (order.input == InputFrom::nowhere) {
    int nothing = ::open("/dev/null", O_RDONLY);
    if (nothing > 0) {
      ::dup2(nothing, STDIN_FILENO);
      ::close(nothing);
    }
  }
  ::dup2(ends.output, STDOUT_FILENO);
  ::dup2(ends.errors, STDERR_FILENO);
  if (!cpus.empty() && !posix::set_affinity(cpus)) return {errno, StartFailure::cpus};
  if (!order.folder.empty() && ::chdir(order.folder.c_str()) != 0) return {errno, StartFailure::folder};
  std::vector<char*> command = pointers(order.command), environment = pointers(order.environment);
  posix::set_descriptor_limit(inheritance.descriptors);
  posix::restore_signals(inheritance.signals);
  ::execve(order.program.c_str(), command.data(), environment.data());
  if (errno == ENOEXEC) {  // a script whose first line names no interpreter: /bin/sh runs it, as with execvp
    char shell[] = "/bin/sh";
    command[0] = const_cast<char*>(order.program.c_str());
    command.insert(command.begin(), shell);
    ::execve(shell, command.data(), environment.data());
  }
  return {errno, StartFailure::execute};
}

}  // namespace

const char* StartFailure::describe(Step step) {
  switch (step) {
    case folder: return "entering the working folder";
    case cpus: return "binding to its CPUs";
    case execute: return "executing the command";
  }
  return "starting";
}

Result<RankProcess> start_rank(const StartRank& order, const posix::CpuMask& cpus, const Inheritance& inheritance) {
  auto output = make_pipe(), errors = make_pipe(), report = make_pipe();
  auto input = order.input == InputFrom::horovodrun ? make_pipe() : Result<Pipe>(Pipe{});
  if (!input) return input.error();
  if (!output) return output.error();
  if (!errors) return errors.error();
  if (!report) return report.error();
  pid_t agent = ::getpid();
  pid_t child = ::fork();
  if (child < 0) return system_error("no process for " + order.title + " (see ulimit -u)", errno);
  if (child == 0) {
    StartFailure failure =
        become_rank(order, cpus, inheritance, agent, {input->read.get(), output->write.get(), errors->write.get()});
    (void)!::write(report->write.get(), &failure, sizeof failure);
    ::_exit(127);
  }
  ::setpgid(child, child);  // parent and child both call this, so it is done whichever of them comes first
  if (order.input == InputFrom::agent) {
    // The writer of our input must see it when the rank stops reading. Therefore only the rank may hold the other end.
    posix::FileDescriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (nothing) ::dup2(nothing.get(), STDIN_FILENO);
  }
  RankProcess rank;
  rank.rank = order.rank;
  rank.is_site_launcher = order.is_site_launcher;
  rank.process = rank.group = child;
  rank.output[0] = std::move(output->read);
  rank.output[1] = std::move(errors->read);
  rank.start_report = std::move(report->read);
  rank.input = std::move(input->write);
  for (int descriptor : {rank.output[0].get(), rank.output[1].get(), rank.start_report.get(), rank.input.get()})
    if (descriptor >= 0) ::fcntl(descriptor, F_SETFL, O_NONBLOCK);
  return rank;
}

}  // namespace hvd::launcher
