#include "launcher/staging/staging.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/deadline.hpp"
#include "launcher/staging/environments.hpp"
#include "launcher/staging/staged_rank.hpp"
#include "launcher/staging/stager.hpp"
#include "launcher/staging/unpacker.hpp"
#include "launcher/targets/target.hpp"
#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/files/random.hpp"
#include "native/posix/processes/process.hpp"

namespace hvd::launcher::staging {
namespace {

// The horovodrun that starts the stagers. The kernel ends it if this process ends.
struct StagerRun {
  pid_t process = 0;
  posix::FileDescriptor output;
};

Result<StagerRun> start(const std::vector<std::string>& command) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("no pipe for the stagers", errno);
  posix::FileDescriptor ours(ends[0]), theirs(ends[1]);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = ::getpid();
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return system_error("no process for the stagers (see ulimit -u)", errno);
  if (child == 0) {
    if (!posix::die_with_parent(SIGTERM, parent)) ::_exit(1);
    int nothing = ::open("/dev/null", O_RDONLY);
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(theirs.get(), STDOUT_FILENO);
    ::execv("/proc/self/exe", words.data());
    ::_exit(126);
  }
  return StagerRun{child, std::move(ours)};
}

// Reads the output until the run has ended. Returns true if it succeeded. `on_line` gets each line of standard output.
template <typename OnLine>
bool follow(StagerRun& run, OnLine on_line) {
  std::string text;
  for (char chunk[4096];;) {
    ssize_t count = ::read(run.output.get(), chunk, sizeof chunk);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(chunk, static_cast<std::size_t>(count));
    for (std::size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1))
      on_line(text.substr(0, end));
  }
  int status = 0;
  while (::waitpid(run.process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The ranks' working folder may be another one than ours.
std::string parent_of(const Flags& flags) {
  const std::string place = flags.get("stage_to");
  return place.empty() ? place : std::filesystem::absolute(place).lexically_normal().string();
}

Result<StagerRun> start_stagers(const Flags& flags, const Environment& environment, std::span<char* const> arguments,
                                const char* what, const std::string& subject) {
  auto horovodrun = program_on_other_hosts(environment);
  if (!horovodrun) return horovodrun.error();
  std::vector<std::string> command = {"horovodrun"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const std::string parent = parent_of(flags);
  for (const std::string& word : {*horovodrun, std::string(stager_flag), std::string(what), flags.get("stage_job"),
                                  subject, parent.empty() ? std::string("-") : parent})
    command.push_back(word);
  return start(command);
}

// Checks what can be checked before anything is started. Returns the absolute path of the archive.
Result<std::string> look_at(const std::string& word) {
  const std::string path = std::filesystem::absolute(word).lexically_normal().string();
  auto wrong = [&](const Error& error) { return Error(error.code, "--stage " + word + ": " + error.message); };
  auto state = ArchiveState::of(path);
  if (!state) return wrong(state.error());
  posix::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string begin(packing_bytes, '\0');
  ssize_t count = file ? ::read(file.get(), begin.data(), begin.size()) : -1;
  if (count < 0) return wrong(system_error("the archive cannot be read", errno));
  begin.resize(static_cast<std::size_t>(count));
  auto packing = packing_of(begin);
  if (!packing) return wrong(packing.error());
  return path;
}

}  // namespace

Status stage(Flags& flags, const Environment& environment, std::span<char* const> arguments) {
  const auto begin = Clock::now();
  auto path = look_at(flags.get("stage"));
  if (!path) return path.error();
  flags.set("stage_job", posix::random_hex(8));
  auto run = start_stagers(flags, environment, arguments, to_stage, *path);
  if (!run) return run.error();
  std::optional<Staged> staged;
  const bool is_well = follow(*run, [&](const std::string& line) {
    if (auto found = staged_in(line)) staged = found;
    else std::fprintf(stderr, "%s\n", line.c_str());
  });
  if (!is_well || !staged)
    return Error(ErrorCode::system, "--stage " + flags.get("stage") +
                                        ": the environment could not be brought to all nodes (see the lines above); "
                                        "the job was not started");
  if (flags.is_set("verbose"))
    std::fprintf(stderr, "horovodrun: the environment was brought to %d of %d nodes in %.1f s\n", staged->new_nodes,
                 staged->nodes, std::chrono::duration<double>(Clock::now() - begin).count());
  flags.set("stage_digest", staged->digest);
  auto horovodrun = program_on_other_hosts(environment);
  if (!horovodrun) return horovodrun.error();
  flags.command = in_staged_environment(*horovodrun, staged->digest, parent_of(flags), flags.command);
  return {};
}

Status remove_staged(const Flags& flags, const Environment& environment, std::span<char* const> arguments) {
  auto run = start_stagers(flags, environment, arguments, to_remove, flags.get("stage_digest"));
  if (!run) return run.error();
  if (follow(*run, [](const std::string&) {})) return {};
  return Error(ErrorCode::system,
               "--stage-remove: the environment could not be removed from all hosts (see the lines above)");
}

}  // namespace hvd::launcher::staging
