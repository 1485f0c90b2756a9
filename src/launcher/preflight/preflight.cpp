#include "launcher/preflight/preflight.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/text/comma_list.hpp"
#include "launcher/preflight/page.hpp"
#include "launcher/preflight/probe.hpp"
#include "launcher/staging/staged_rank.hpp"
#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/files/random.hpp"
#include "native/posix/processes/spawn.hpp"

namespace hvd::launcher::preflight {
namespace {

using namespace std::chrono_literals;

// The limits below are for a preflight of at most 30 seconds; together they are a few seconds shorter.
constexpr auto time_for_all = 23s;
constexpr auto time_to_end = 2s;
// When half of the probes are done, the others get only this time.
constexpr auto time_for_the_last = 9s;
// Where ranks have GPUs, NCCL starts, which may take some seconds, and measures.
constexpr auto more_time_for_gpus = 27s;
// A second look at slow links happens only if the first one took less time than this.
constexpr auto time_for_a_second_look = 5s;
constexpr const char* start_timeout_seconds = "12";

// Runs a horovodrun that starts the probes, and reads its output.
class ProbeRun {
 public:
  Status start(const std::vector<std::string>& command, const Environment& environment);
  // Returns when this horovodrun has ended. If the time is over, it is ended.
  void follow(int ranks);

  ProbeLines lines;
  std::string trouble;  // all lines of output that are not from probes
  bool is_out_of_time = false;

 private:
  void take(int stream);
  void end();
  std::array<posix::FileDescriptor, 2> streams_;  // standard output and standard error of this horovodrun
  std::array<std::string, 2> partial_;
  pid_t process_ = 0;
};

Status ProbeRun::start(const std::vector<std::string>& command, const Environment& environment) {
  std::array<posix::FileDescriptor, 2> theirs;
  for (std::size_t stream = 0; stream < 2; ++stream) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("no pipe for the probes", errno);
    streams_[stream] = posix::FileDescriptor(ends[0]);
    theirs[stream] = posix::FileDescriptor(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
  const posix::Streams streams{.output = theirs[0].get(), .errors = theirs[1].get()};
  if (const int failed = posix::spawn(process_, command, streams, &environment); failed != 0)
    return system_error("the probes cannot be started", failed);
  return {};
}

void ProbeRun::take(int stream) {
  auto at = static_cast<std::size_t>(stream);
  std::array<char, 65536> chunk;
  ssize_t count = ::read(streams_[at].get(), chunk.data(), chunk.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    streams_[at].reset();
    return;
  }
  std::string& text = partial_[at].append(chunk.data(), static_cast<std::size_t>(count));
  for (std::size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
    const std::string line = text.substr(0, end);
    constexpr std::size_t longest_trouble = 2000;
    // Lines that come after the probes were ended are about that end, so they are ignored.
    if (!lines.take(line) && !is_out_of_time && trouble.size() < longest_trouble && !line.empty())
      trouble += (trouble.empty() ? "" : " ") + line;
  }
}

void ProbeRun::end() {
  is_out_of_time = true;
  ::kill(process_, SIGTERM);
}

void ProbeRun::follow(int ranks) {
  Deadline deadline = Deadline::after(time_for_all);
  bool half_are_through = false, have_gpus = false;
  while (streams_[0] || streams_[1]) {
    std::array<pollfd, 2> events{};
    for (std::size_t stream = 0; stream < 2; ++stream) events[stream] = {streams_[stream].get(), POLLIN, 0};
    int ready = ::poll(events.data(), events.size(), static_cast<int>(deadline.left().count()));
    for (int stream = 0; stream < 2 && ready > 0; ++stream)
      if (events[static_cast<std::size_t>(stream)].revents != 0) take(stream);
    if (!have_gpus && std::ranges::any_of(lines.probes(), [](const Facts& p) { return p.has("gpu_ordinal"); })) {
      have_gpus = true;
      deadline = Deadline::after(deadline.left() + more_time_for_gpus);
    }
    const auto through = std::ranges::count_if(lines.probes(), [](const Facts& p) { return p.has("is_through"); });
    if (!half_are_through && 2 * through >= ranks) {
      half_are_through = true;
      deadline = Deadline::after(std::min<std::chrono::milliseconds>(deadline.left(), time_for_the_last));
    }
    if (!deadline.passed()) continue;
    if (is_out_of_time) break;
    end();
    deadline = Deadline::after(time_to_end);
  }
  if (streams_[0] || streams_[1]) ::kill(process_, SIGKILL);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::vector<std::string> hosts_of(const JobRequest& request, const JobOptions& plan) {
  std::vector<std::string> names;
  auto add = [&](const std::string& name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  if (!plan.site) {
    for (const Placement& placement : plan.placements) add(placement.host);
    return names;
  }
  if (!request.around.is_a_job() && request.hosts.empty()) return names;
  if (auto hosts = hosts_with_ranks(request))
    for (const HostSlots& host : *hosts)
      if (host.slots > 0) add(host.host);
  return names;
}

// Returns the Python of the user's command, if the command begins with one.
std::string python_of(const std::vector<std::string>& command) {
  if (command.empty()) return "";
  std::string_view name = command.front();
  name.remove_prefix(std::min(name.rfind('/') + 1, name.size()));
  return name.starts_with("python") ? command.front() : "";
}

Status look(const std::vector<std::string>& command, const Environment& environment, Allocation& allocation) {
  ProbeRun probes;
  HVD_RETURN_IF_ERROR(probes.start(command, environment));
  probes.follow(allocation.ranks);
  allocation.probes = probes.lines.probes();
  allocation.trouble = probes.trouble;
  allocation.is_out_of_time = probes.is_out_of_time;
  return {};
}

// True if a link is slow. The caller then measures once more, because another job may slow a node for a moment.
bool has_slow_link(const std::vector<Judged>& all) {
  return std::ranges::any_of(
      all, [](const Judged& each) { return each.check == links_check.name && !each.verdict.findings.empty(); });
}

}  // namespace

Result<Outcome> run(const JobRequest& request, std::span<const char* const> arguments, bool as_json) {
  const auto begin = Clock::now();
  auto chosen = choose_target(request);
  if (!chosen) return chosen.error();
  auto plan = chosen->target->plan(request);
  if (!plan) return plan.error();
  auto horovodrun = program_on_other_hosts(request.environment);
  if (!horovodrun) return horovodrun.error();

  Allocation allocation;
  allocation.ranks = request.ranks;
  allocation.hosts = hosts_of(request, *plan);
  allocation.launcher = plan->site ? plan->site->command.front() : "agents of ours";
  std::vector<std::string> command = {"/proc/self/exe"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const bool in_image = request.flags.has("container");
  // the probes run in the staged environment, too
  const std::size_t before = staging::words_of_staging(request.command);
  const auto program = request.command.begin() + static_cast<std::ptrdiff_t>(before);
  command.insert(command.end(), request.command.begin(), program);
  for (std::string& word : probe_command(in_image ? "horovodrun" : *horovodrun, posix::random_hex(8), allocation.hosts,
                                         python_of({program, request.command.end()})))
    command.push_back(std::move(word));
  Environment environment = request.environment;
  environment.set("HOROVOD_START_TIMEOUT", start_timeout_seconds);
  environment.set("HOROVOD_TERMINATION_GRACE_SECONDS", "1");
  HVD_RETURN_IF_ERROR(look(command, environment, allocation));
  auto judged = judge(allocation);
  if (Clock::now() - begin < time_for_a_second_look && has_slow_link(judged)) {
    HVD_RETURN_IF_ERROR(look(command, environment, allocation));
    judged = judge(allocation);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return Outcome{as_json ? json_of(judged, allocation, seconds) : page_of(judged, allocation, seconds),
                 has_fault(judged)};
}

}  // namespace hvd::launcher::preflight
