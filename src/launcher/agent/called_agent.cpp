#include "launcher/agent/called_agent.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/checksums/sha256.hpp"
#include "base/settings/config.hpp"
#include "base/settings/environment.hpp"
#include "launcher/agent/agent.hpp"
#include "launcher/agent/lost_script.hpp"
#include "launcher/agent/remote_agent.hpp"
#include "native/posix/files/random.hpp"
#include "native/posix/files/settings_files.hpp"
#include "native/posix/files/text_file.hpp"
#include "native/posix/machine/host_identity.hpp"
#include "native/posix/processes/process.hpp"
#include "native/posix/processes/signals.hpp"
#include "native/posix/processes/spawn.hpp"
#include "native/posix/sockets/endpoints.hpp"
#include "native/posix/sockets/tcp_socket.hpp"
#include "schedulers/pbs/node_file.hpp"
#include "schedulers/slurm/step.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t secret_bytes = 64;
constexpr milliseconds time_to_connect{10000}, time_for_an_address{3000}, time_for_a_secret{2000};
constexpr int unreachable = 255;  // the exit code of ssh if it cannot reach a host

int complain(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  return unreachable;
}

bool wait_until(int descriptor, short event, Deadline deadline) {
  pollfd ready{descriptor, event, 0};
  return ::poll(&ready, 1, static_cast<int>(std::min<milliseconds>(deadline.left(), std::chrono::hours(1)).count())) >
         0;
}

// Reads the secret that the other end sends, and compares it. The time is limited, because the other end may be a
// stranger.
bool shows(int socket, const std::string& secret) {
  const Deadline deadline = Deadline::after(time_for_a_secret);
  std::string shown;
  while (shown.size() < secret.size() && wait_until(socket, POLLIN, deadline)) {
    char chunk[secret_bytes];
    ssize_t count = ::recv(socket, chunk, secret.size() - shown.size(), 0);
    if (count <= 0) return false;
    shown.append(chunk, static_cast<std::size_t>(count));
  }
  return are_equal_secrets(as_bytes(shown), as_bytes(secret));
}

// Makes the file. Removes it when the object is destroyed, or when SIGTERM ends this process (HostLink::signal_way).
class CallFile {
 public:
  CallFile(const Environment& environment, const std::string& text) {
    std::string folder = environment.get("HOROVOD_SHARED_DIR").value_or("");
    if (folder.empty()) folder = environment.get("HOME").value_or(".");
    path_ = folder + "/.horovod-call-" + posix::random_hex(8);
    path_at_the_end = path_.c_str();
    ::signal(SIGTERM, [](int signal) {
      ::unlink(path_at_the_end);
      posix::end_by_signal(signal);
    });
    posix::FileDescriptor file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    is_written_ = file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  }
  CallFile(const CallFile&) = delete;
  CallFile& operator=(const CallFile&) = delete;
  ~CallFile() {
    ::signal(SIGTERM, SIG_DFL);
    ::unlink(path_.c_str());
  }
  bool is_written() const { return is_written_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool is_written_ = false;
  static inline const char* path_at_the_end = nullptr;  // there is one such file
};

Result<pid_t> start(const std::vector<std::string>& command, const Environment& environment) {
  pid_t process = 0;
  // the command writes to standard error, because standard output carries messages
  const posix::Streams streams{.output = STDERR_FILENO, .errors = posix::Streams::inherited};
  if (const int failed = posix::spawn(process, command, streams, &environment); failed != 0)
    return system_error(command[0] + " cannot be executed", failed);
  return process;
}

// Waits until the agent connects, or until the command has ended. If horovodrun gives up, it ends this process.
posix::FileDescriptor wait_for_agent(const posix::PeerSockets& sockets, const std::string& secret, pid_t command) {
  for (;;) {
    posix::FileDescriptor caller = posix::accept_from_any(sockets.sockets, Deadline::after(milliseconds(200)));
    if (caller && shows(caller.get(), secret)) return caller;
    if (!caller && ::waitpid(command, nullptr, WNOHANG) == command) return {};
  }
}

// Carries the bytes that are there from one descriptor to the other. Returns false at the end of the input.
bool carry(int from, int to) {
  std::array<char, 64 << 10> chunk;
  ssize_t count = ::read(from, chunk.data(), chunk.size());
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  for (ssize_t at = 0; at < count;) {
    ssize_t written = ::write(to, chunk.data() + at, static_cast<std::size_t>(count - at));
    if (written > 0) at += written;
    else if (errno == EAGAIN) (void)wait_until(to, POLLOUT, Deadline::never());
    else if (errno != EINTR) return false;
  }
  return count > 0;
}

void carry_messages(int socket) {
  bool is_heard = true;
  for (;;) {
    pollfd ready[] = {{is_heard ? STDIN_FILENO : -1, POLLIN, 0}, {socket, POLLIN, 0}};
    ::poll(ready, 2, -1);
    if (is_heard && ready[0].revents != 0 && !carry(STDIN_FILENO, socket)) {
      is_heard = false;
      ::shutdown(socket, SHUT_WR);
    }
    if (ready[1].revents != 0 && !carry(socket, STDOUT_FILENO)) return;
  }
}

// The command that starts a program on a host, up to the program, and what it means if it ends too early.
struct Way {
  std::vector<std::string> command;
  Environment environment;
  std::string why_no_agent;
};
using FindWay = Result<Way> (*)(const Environment& environment, const std::string& host);

int run_line(int count, char** arguments, FindWay find_way) {
  ::signal(SIGPIPE, SIG_IGN);
  const Environment environment = posix::environment_with_files();  // horovodrun gives its files' values to ranks only
  const std::vector<std::string> words(arguments, arguments + count);
  if (words.size() != 7) return complain("a line to an agent was started with other arguments than expected");
  Environment network = environment;
  if (words[0] != "-") network.set("HOROVOD_GLOO_IFACE", words[0]);
  if (words[1] != "-") network.set("HOROVOD_PORT_RANGE", words[1]);
  std::vector<std::string> warnings;
  auto config = Config::from(network, warnings);
  if (!config) return complain(config.error().message);
  auto way = find_way(environment, words[3]);
  if (!way) return complain(way.error().message);
  if (words[2] != "-") way->environment.set("HOROVOD_MAX_REQUEUES", words[2]);  // for an agent of srun
  auto sockets = posix::listen_for_peers(config->network_interfaces, config->port_range);
  if (!sockets) return complain(sockets.error().message);
  const std::string secret = posix::random_hex(secret_bytes / 2);
  posix::FileDescriptor socket;
  pid_t starter = 0;
  {
    CallFile file(environment, sockets->endpoints + "\n" + secret);
    if (!file.is_written())
      return complain(file.path() + " cannot be written: set HOROVOD_SHARED_DIR to a folder that all hosts see");
    for (const std::string& word : {words[4], std::string(called_agent_flag), file.path(), words[6]})
      way->command.push_back(word);
    auto started = start(way->command, way->environment);
    if (!started) return complain(started.error().message);
    starter = *started;
    socket = wait_for_agent(*sockets, secret, starter);
  }
  if (!socket) return complain(way->why_no_agent);
  (void)posix::prepare_connection(socket.get(), milliseconds_of(config->peer_timeout_s));
  // the lifeline, not this connection, notices lost hosts
  posix::set_patience_with_unanswered_data(socket.get(), milliseconds(0));
  carry_messages(socket.get());
  socket.reset();
  while (::waitpid(starter, nullptr, 0) < 0 && errno == EINTR) {
  }
  return 0;
}

}  // namespace

int task_number_of(const std::string& host, const std::string& node_file_text) {
  auto short_name = [](const std::string& name) { return name.substr(0, name.find('.')); };
  std::istringstream lines(node_file_text);
  int number = 0;
  for (std::string line; std::getline(lines, line); ++number)
    if (line == host || short_name(line) == short_name(host)) return number;
  return -1;
}

int run_pbsdsh_line(int count, char** arguments) {
  return run_line(count, arguments, [](const Environment& environment, const std::string& host) -> Result<Way> {
    auto node_file = posix::read_text(schedulers::pbs_node_file(environment));
    if (!node_file) return node_file.error();
    const int number = task_number_of(host, *node_file);
    if (number < 0)
      return Error(ErrorCode::invalid_argument,
                   "expected the host " + host + " in PBS_NODEFILE, which lacks it: name hosts of the job");
    return Way{{"pbsdsh", "-n", std::to_string(number), "--"},
               environment,
               "pbsdsh has ended before an agent connected: see the output of the PBS job for its message"};
  });
}

std::vector<std::string> srun_words(const std::string& host) {
  return {"srun",
          "--nodes=1",
          "--ntasks=1",
          "--ntasks-per-node=1",
          "--nodelist=" + host,
          "--overlap",
          "--mpi=none",
          "--no-kill",
          "--mem=0",
          "--cpu-bind=none",
          "--wait=0",
          "--quiet",
          "--kill-on-bad-exit=0",
          "--export=ALL",
          "--input=none"};
}

int run_srun_line(int count, char** arguments) {
  return run_line(count, arguments, [](const Environment& environment, const std::string& host) -> Result<Way> {
    Way way{srun_words(host), environment, "srun has ended before an agent connected"};
    // What the job's ranks were to get is not what the agent gets, which stands for all ranks of its host.
    for (const auto& names :
         {schedulers::variables_of_slurm_step(environment), schedulers::variables_of_slurm_resources()})
      for (const std::string& name : names) way.environment.erase(name);
    return way;
  });
}

int run_called_agent(const std::string& file, milliseconds grace) {
  auto text = posix::read_text(file);
  const std::size_t line = text ? text->find('\n') : std::string::npos;
  if (line == std::string::npos || text->size() < line + 1 + secret_bytes)
    return complain(posix::host_name() + ": expected an address and a secret in " + file + ", but " +
                    (text ? "the file is cut off" : text.error().message) +
                    ": set HOROVOD_SHARED_DIR to a folder that all hosts see");
  const std::string secret = text->substr(line + 1, secret_bytes);
  auto here = posix::interfaces();
  auto own = here ? posix::usable_addresses(*here, "") : Result<std::vector<posix::InterfaceAddress>>(here.error());
  const Deadline deadline = Deadline::after(time_to_connect);
  posix::FileDescriptor socket = posix::connect_to_nearest(
      text->substr(0, line), own ? *own : std::vector<posix::InterfaceAddress>(), time_for_an_address, deadline);
  if (!socket ||
      ::send(socket.get(), secret.data(), secret.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(secret.size()))
    return complain(posix::host_name() + ": no connection to " + text->substr(0, line) +
                    ": see --network-interfaces, HOROVOD_PORT_RANGE and the firewall");
  ::dup2(socket.get(), STDIN_FILENO);
  ::dup2(socket.get(), STDOUT_FILENO);
  socket.reset();
  const int code = run_remote_agent(grace);
  if (code == exit_code_if_horovodrun_is_lost) stand_in_for_lost_script(Environment::of_this_process());
  return code;
}

}  // namespace hvd::launcher
