#include "native/posix/ask_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/deadline.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::posix {

std::string answer_of(const std::vector<std::string>& command, std::chrono::milliseconds limit, bool also_errors) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "";
  FileDescriptor output(ends[0]), input(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, input.get(), STDOUT_FILENO);
  if (also_errors) ::posix_spawn_file_actions_adddup2(&actions, input.get(), STDERR_FILENO);
  else ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t child = 0;
  int failed = ::posix_spawnp(&child, words[0], &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  input.reset();
  if (failed != 0) return "";
  std::string text;
  Deadline deadline = Deadline::after(limit);
  for (char chunk[256];;) {
    pollfd readable{output.get(), POLLIN, 0};
    int ready = ::poll(&readable, 1, static_cast<int>(deadline.left().count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      ::kill(child, SIGKILL);
      break;
    }
    ssize_t count = ::read(output.get(), chunk, sizeof chunk);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(chunk, static_cast<std::size_t>(count));
  }
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return text;
}

}  // namespace hvd::posix
