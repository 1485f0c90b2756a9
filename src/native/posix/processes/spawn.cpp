#include "native/posix/processes/spawn.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

namespace hvd::posix {
namespace {

void add(posix_spawn_file_actions_t& actions, int stream, int source) {
  if (source == Streams::inherited) return;
  const int way = stream == STDIN_FILENO ? O_RDONLY : O_WRONLY;
  if (source == Streams::nothing) ::posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", way, 0);
  else ::posix_spawn_file_actions_adddup2(&actions, source, stream);
}

void set_own_group(posix_spawnattr_t& attributes) {
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

int spawn(pid_t& process, const std::vector<std::string>& command, const Streams& streams,
          const Environment* environment, ProcessGroup group) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  add(actions, STDIN_FILENO, streams.input);
  add(actions, STDOUT_FILENO, streams.output);
  add(actions, STDERR_FILENO, streams.errors);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  if (group == ProcessGroup::own) set_own_group(attributes);
  std::vector<std::string> variables;
  if (environment != nullptr)
    for (const auto& [name, value] : environment->variables()) variables.push_back(name + "=" + value);
  const std::vector<char*> words = pointers_to(command), lines = pointers_to(variables);
  const int failed = ::posix_spawnp(&process, words[0], &actions, &attributes, words.data(),
                                    environment == nullptr ? environ : lines.data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return failed;
}

}  // namespace hvd::posix
