#include "launcher/elastic/discovery.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text/cut_text.hpp"
#include "base/text/trimmed.hpp"
#include "native/posix/processes/signals.hpp"
#include "native/posix/processes/spawn.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t most_output = 1 << 20;  // a list of hosts is shorter
constexpr milliseconds longest_burial(5000);  // of a script that was killed
constexpr std::size_t most_complaints = 500;  // the last bytes of what the script writes to standard error

Error invalid(std::string message) {
  return Error(ErrorCode::invalid_argument, std::move(message));
}

// Reads what there is, and at most a little more than most_output. Returns false if the writers have closed it.
bool drain(const posix::FileDescriptor& from, std::string& text) {
  for (char chunk[4096]; text.size() <= most_output;) {
    ssize_t count = ::read(from.get(), chunk, sizeof chunk);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN;
    if (count == 0) return false;
    text.append(chunk, static_cast<std::size_t>(count));
  }
  return true;
}

struct ScriptPipe {
  posix::FileDescriptor reader, writer;
};
Result<ScriptPipe> make_script_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("the discovery of hosts got no pipe", errno);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return ScriptPipe{posix::FileDescriptor(ends[0]), posix::FileDescriptor(ends[1])};
}

}  // namespace

Result<std::vector<HostSlots>> read_found_hosts(std::string_view text, std::optional<int> slots_per_host) {
  std::vector<HostSlots> hosts;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string line(trimmed(text.substr(0, end)));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty()) continue;
    const std::string where = "line " + std::to_string(number);
    std::optional<HostLine> read = read_host_line(line);
    if (!read)
      return invalid(where + " must be 'host' or 'host:slots', not '" + std::string(cut_text(line, 200)) + "'");
    if (!read->slots && !slots_per_host)
      return invalid(where + " names the host " + read->host + " without slots: print '" + read->host +
                     ":SLOTS', or give --slots-per-host");
    const HostSlots host{read->host, read->slots.value_or(slots_per_host.value_or(0))};
    auto same = std::ranges::find(hosts, host.host, &HostSlots::host);
    if (same == hosts.end()) {
      if (host.slots > 0) hosts.push_back(host);
    } else if (same->slots != host.slots) {
      return invalid(where + " names the host " + host.host + " a second time, with " + std::to_string(host.slots) +
                     " slots, after " + std::to_string(same->slots) + ": name each host once");
    }
  }
  return hosts;
}

Discovery::~Discovery() {
  if (is_running()) kill();
  bury(Deadline::after(longest_burial));
}

std::optional<Result<std::vector<HostSlots>>> Discovery::look() {
  if (fixed_) return std::exchange(fixed_, std::nullopt);
  if (!script_) return {};
  bury(Deadline::after(milliseconds(0)));
  if (!is_running()) {
    if (!next_.passed()) return {};
    if (Status begun = begin(); !begun) {
      next_ = Deadline::after(script_->pause);
      return Found(begun.error());
    }
    return {};
  }
  read();
  std::optional<int> ended = reap();
  if (!ended && !next_.passed() && printed_.size() <= most_output) return {};
  if (!ended) {
    kill();
  } else {
    read();
  }
  Found found = ended ? conclude(*ended)
                      : failure(printed_.size() > most_output
                                    ? "has printed more than a list of hosts can have (1 MiB), and was killed"
                                    : "has not ended within " + std::to_string(script_->limit.count() / 1000) +
                                          " s, and was killed");
  child_ = -1;
  output_.reset();
  errors_.reset();
  next_ = Deadline::after(script_->pause);
  return found;
}

// In a group of its own, so that all of its processes can be killed.
Status Discovery::begin() {
  auto output = make_script_pipe();
  if (!output) return output.error();
  auto errors = make_script_pipe();
  if (!errors) return errors.error();
  const posix::Streams streams{.output = output->writer.get(), .errors = errors->writer.get()};
  const int failed =
      posix::spawn(child_, {"/bin/sh", "-c", script_->command}, streams, nullptr, posix::ProcessGroup::own);
  if (failed != 0) {
    child_ = -1;
    return Error(ErrorCode::system,
                 "the discovery of hosts could not start /bin/sh: " + std::string(std::strerror(failed)));
  }
  output_ = std::move(output->reader);
  errors_ = std::move(errors->reader);
  printed_.clear();
  complaints_.clear();
  next_ = Deadline::after(script_->limit);
  return {};
}

void Discovery::read() {
  if (output_ && !drain(output_, printed_)) output_.reset();
  if (errors_ && !drain(errors_, complaints_)) errors_.reset();
  if (complaints_.size() > most_complaints) complaints_.erase(0, complaints_.size() - most_complaints);
}

// The exit decides, not the end of the output: what the script has left in the background may keep that open.
std::optional<int> Discovery::reap() {
  int status = 0;
  const pid_t ended = ::waitpid(child_, &status, WNOHANG);
  if (ended == child_) return status;
  if (ended < 0 && errno == ECHILD) return 0;  // somebody else has asked for its status
  return {};
}

Result<std::vector<HostSlots>> Discovery::conclude(int wait_status) {
  if (WIFSIGNALED(wait_status))
    return failure("was killed by signal " + std::to_string(WTERMSIG(wait_status)) + " (" +
                   posix::name_of_signal(WTERMSIG(wait_status)) + ")");
  if (WEXITSTATUS(wait_status) != 0) return failure("exited with code " + std::to_string(WEXITSTATUS(wait_status)));
  auto hosts = read_found_hosts(printed_, script_->slots_per_host);
  if (!hosts) return failure("has printed what is no list of hosts: " + hosts.error().message);
  return hosts;
}

void Discovery::kill() {
  ::kill(-child_, SIGKILL);
  ::kill(child_, SIGKILL);
  killed_.push_back(child_);
}

// A process that hangs in a file system ends only when that answers, so nobody waits for it without a limit.
void Discovery::bury(Deadline deadline) {
  for (;;) {
    std::erase_if(killed_, [](pid_t each) { return ::waitpid(each, nullptr, WNOHANG) != 0; });
    if (killed_.empty() || deadline.passed()) return;
    ::poll(nullptr, 0, 2);
  }
}

Error Discovery::failure(const std::string& how) const {
  std::string text =
      "the script of --host-discovery-script (" + std::string(cut_text(script_->command, 200)) + ") " + how;
  const std::string_view complaints = trimmed(complaints_);
  if (!complaints.empty()) text += "; it wrote to standard error: " + std::string(complaints);
  return invalid(std::move(text));
}

std::vector<pollfd> Discovery::wanted() const {
  std::vector<pollfd> all;
  for (const posix::FileDescriptor* each : {&output_, &errors_})
    if (*each) all.push_back({each->get(), POLLIN, 0});
  return all;
}

milliseconds Discovery::left() const {
  if (fixed_) return milliseconds(0);
  if (!script_) return Deadline::never().left();
  // Its end is no news on a descriptor, but nearly always comes with the end of its output.
  return is_running() ? std::min(next_.left(), milliseconds(output_ ? 200 : 10)) : next_.left();
}

}  // namespace hvd::launcher
