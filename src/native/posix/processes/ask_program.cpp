#include "native/posix/processes/ask_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/deadline.hpp"
#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/processes/spawn.hpp"

namespace hvd::posix {

std::string answer_of(const std::vector<std::string>& command, std::chrono::milliseconds limit, bool also_errors) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "";
  FileDescriptor output(ends[0]), input(ends[1]);
  pid_t child = 0;
  const int failed =
      spawn(child, command, {.output = input.get(), .errors = also_errors ? input.get() : Streams::nothing});
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
