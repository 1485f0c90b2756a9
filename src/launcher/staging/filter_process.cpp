#include "launcher/staging/filter_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "native/posix/processes/spawn.hpp"

namespace hvd::launcher::staging {
namespace {

constexpr int pipe_bytes = 1 << 20;

struct Pipe {
  posix::FileDescriptor read, write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("no pipe to unpack with (see ulimit -n)", errno);
  ::fcntl(ends[0], F_SETPIPE_SZ, pipe_bytes);  // if the system does not allow this size, the pipe keeps its size
  return Pipe{posix::FileDescriptor(ends[0]), posix::FileDescriptor(ends[1])};
}

void never_block(int descriptor) {
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

}  // namespace

Result<FilterProcess> FilterProcess::start(const std::vector<std::string>& command, bool has_output) {
  FilterProcess process;
  process.name_ = command[0];
  auto input = make_pipe(), output = has_output ? make_pipe() : Result<Pipe>(Pipe{});
  if (!input) return input.error();
  if (!output) return output.error();
  // The program's error messages go to a file, so the program never waits until we read them.
  process.errors_ = posix::FileDescriptor(::memfd_create("complaints", MFD_CLOEXEC));
  if (!process.errors_)
    return system_error("no memory for the messages of " + process.name_ + " (memfd_create)", errno);
  const int failed = posix::spawn(
      process.process_, command,
      {input->read.get(), has_output ? output->write.get() : posix::Streams::nothing, process.errors_.get()});
  if (failed == ENOENT)
    return Error(ErrorCode::unsupported,
                 "the program " + command[0] +
                     " is needed to unpack the archive, but is not there: install it, or pack in another way");
  if (failed != 0) return system_error(command[0] + " cannot be executed", failed);
  process.input_ = std::move(input->write);
  process.output_ = std::move(output->read);
  if (has_output) never_block(process.output_.get());
  return process;
}

FilterProcess::FilterProcess(FilterProcess&& other) noexcept
    : name_(std::move(other.name_)),
      process_(std::exchange(other.process_, 0)),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)),
      errors_(std::move(other.errors_)) {}

FilterProcess::~FilterProcess() {
  if (process_ <= 0) return;
  ::kill(process_, SIGKILL);
  (void)end();
}

void FilterProcess::make_input_non_blocking() const {
  never_block(input_.get());
}

bool FilterProcess::write(ConstBytes bytes) const {
  while (!bytes.empty()) {
    ssize_t count = ::write(input_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

std::string FilterProcess::end() {
  input_.reset();
  output_.reset();
  int status = 0;
  while (process_ > 0 && ::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  process_ = 0;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "" : complaint();
}

// tar prints the cause first and a summary last, so the first line is the one to report.
std::string FilterProcess::complaint() const {
  std::array<char, 2000> text{};
  ssize_t count = ::pread(errors_.get(), text.data(), text.size(), 0);
  std::string_view said(text.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  while (said.starts_with('\n')) said.remove_prefix(1);
  said = said.substr(0, said.find('\n'));
  return said.empty() ? name_ + " failed" : std::string(said);
}

}  // namespace hvd::launcher::staging
