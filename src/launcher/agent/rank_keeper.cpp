// Why there is a keeper: a site's launcher waits forever while some process holds a dead rank's output open. PRRTE 3
// does not notice a rank that dies as it starts. Hydra does not say which rank failed. srun leaves the ranks of a host
// behind if its process there is killed. Therefore a keeper is between the launcher and the rank:
//  1. The launcher starts the gate, which is this program. The launcher signals the gate's process group. The gate
//     forks the keeper and passes signals on to it. When the gate ends, the keeper sees the end of the pipe between
//     them. When the launcher's process on this host ends, the gate tells the keeper.
//  2. The keeper has a session of its own, so only SIGKILL to the keeper itself stops it. It adopts what the rank
//     leaves behind. It starts the rank in another process group, sends that group the signals that the gate passes on,
//     and passes the rank's output on in packets.
//  3. When the rank has ended, the keeper reports this in a packet of the rank's standard error, ends what is left
//     below it, and ends in the same way as the rank did. Then the gate does so, too. If the rank failed, the keeper
//     waits a moment before it ends: once an mpiexec has seen a failure, it throws away what comes from other hosts,
//     and this may be the report of the first failure. A rank that wants another run of the job (again_code) has not
//     failed: the keeper reports it, and ends with 0.
//  4. If the gate is told to end, the keeper ends everything (ending.hpp). If the gate is gone, the keeper ends
//     everything without a grace. If the keeper was killed, the gate ends everything.
//  5. A launcher may send a signal to all processes that it knows on a host (Slurm does so where it tracks them by
//     cgroup). Then the rank has the signal already, and must not get it again from the keeper. The keeper gets a copy
//     of the signal, too, in this case. Therefore it waits for such a copy before it passes a signal on.
#include "launcher/agent/rank_keeper.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "base/text/number.hpp"
#include "bootstrap/launch/launch.hpp"
#include "launcher/agent/audience.hpp"
#include "launcher/agent/bridge_preload.hpp"
#include "launcher/agent/ending.hpp"
#include "launcher/agent/packed_input.hpp"
#include "launcher/agent/packed_output.hpp"
#include "launcher/wire/keeper_protocol.hpp"
#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/machine/host_identity.hpp"
#include "native/posix/processes/process.hpp"
#include "native/posix/processes/process_end.hpp"
#include "native/posix/processes/signals.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

constexpr std::initializer_list<int> handled = {SIGCHLD, SIGINT,  SIGTERM, SIGHUP, SIGQUIT,
                                                SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP};
constexpr std::initializer_list<int> asking_for_the_end = {SIGTERM, SIGINT, SIGHUP};
constexpr milliseconds time_for_other_reports{1000};
// The time between the gate's copy of a signal and the keeper's copy. A sender signals one process after the other.
constexpr milliseconds time_to_get_it_too{100};
// The time for writing the rank's last output after the end was wanted. Perhaps nobody reads that output.
constexpr milliseconds time_to_write{1000};

constexpr std::string_view packed_input = "packed-input", input_as_it_comes = "input-as-it-comes";
constexpr std::string_view with_labels = "+labels";

// Closes the descriptors that the rank has. A process that waits for the end of such a descriptor must wait for the
// rank only, not for the keeper.
void close_own_descriptors(std::initializer_list<int> standard, std::initializer_list<int> kept) {
  posix::FileDescriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int descriptor : standard) ::dup2(nothing.get(), descriptor);
  unsigned first = 3;
  std::vector<int> sorted(kept);
  std::sort(sorted.begin(), sorted.end());
  for (int descriptor : sorted) {
    if (descriptor <= STDERR_FILENO) continue;
    auto number = static_cast<unsigned>(descriptor);
    if (number > first) posix::close_descriptors(first, number - 1);
    first = number + 1;
  }
  nothing.release();  // this descriptor is one of those that are closed below
  posix::close_descriptors(first, ~0u);
}

void add_bridge(const char* command) {
  Environment environment = Environment::of_this_process();
  int code = 0;
  auto program = posix::find_program(command, posix::search_path(environment), code);
  auto preload = program ? preload_with_bridge(*program, environment) : std::nullopt;
  if (preload) ::setenv("LD_PRELOAD", preload->c_str(), 1);  // NOLINT(concurrency-mt-unsafe): a single thread
}

int end_like(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return WEXITSTATUS(wait_status);
  int signal = WTERMSIG(wait_status);
  rlimit no_core{};
  ::setrlimit(RLIMIT_CORE, &no_core);  // the rank writes a core file; another one from this process is not wanted
  posix::end_by_signal(signal);
  return 128 + signal;
}

class Keeper {
 public:
  Keeper(const KeeperOrders& orders, posix::FileDescriptor gate, posix::SignalReader signals, PackedOutput output,
         PackedOutput errors, std::optional<PackedInput> input)
      : grace_(orders.grace),
        gate_(std::move(gate)),
        signals_(std::move(signals)),
        output_(std::move(output)),
        errors_(std::move(errors)),
        input_(std::move(input)) {}

  int keep(char** command, const posix::SignalState& before) {
    rank_ = ::fork();
    if (rank_ < 0) {
      std::fprintf(stderr, "horovodrun: no process for the rank (see ulimit -u): %s\n", errno_text(errno).c_str());
      return 1;
    }
    if (rank_ == 0) become_rank(command, before);
    group_ = rank_;
    ::setpgid(rank_, group_);  // parent and child both call this, so it is done whichever of them comes first
    output_.rank_end().reset();
    errors_.rank_end().reset();
    if (input_) input_->rank_end().reset();
    close_own_descriptors(
        {STDIN_FILENO}, {gate_.get(), signals_.descriptor(), pmi_, output_.source(), output_.target(), errors_.source(),
                         errors_.target(), input_ ? input_->source() : -1, input_ ? input_->target() : -1});
    while (!has_ended_ || posix::has_children() || !stays_until_.passed() || is_writing()) {
      wait();
      read_gate();
      output_.relay();
      errors_.relay();
      if (auto taken = input_ ? input_->relay() : std::nullopt) errors_.send(packet_of(*taken));
      take_own_signals();
      hand_on();
      reap();
      ending_.step();
      take_what_the_last_wrote();
      send_report();
    }
    // Nobody reads the output any more, but perhaps the launcher takes this packet.
    if (!report_.empty()) errors_.finish(report_);
    // The site's launcher must not see a failure here, because it would then end the other ranks.
    return wants_another_run(wait_status_) ? 0 : end_like(wait_status_);
  }

 private:
  [[noreturn]] void become_rank(char** command, const posix::SignalState& before) {
    ::setpgid(0, 0);
    if (input_) ::dup2(input_->rank_end().get(), STDIN_FILENO);
    ::dup2(output_.rank_end().get(), STDOUT_FILENO);
    ::dup2(errors_.rank_end().get(), STDERR_FILENO);
    posix::restore_signals(before);
    add_bridge(command[0]);
    ::execvp(command[0], command);
    int code = errno == ENOENT ? 127 : 126;
    std::fprintf(stderr, "horovodrun: %s cannot be executed: %s\n", command[0], errno_text(errno).c_str());
    ::_exit(code);
  }

  void wait() {
    std::vector<pollfd> polled = {{gate_.get(), POLLIN, 0}, {signals_.descriptor(), POLLIN, 0}};
    output_.add_to(polled);
    errors_.add_to(polled);
    if (input_) input_->add_to(polled);
    // The longest time to sleep. If a deadline has passed since keep() looked at it, the call does not sleep.
    milliseconds span = std::chrono::hours(1);
    if (has_ended_ && !stays_until_.passed()) span = stays_until_.left();
    else if (has_ended_ && is_writing()) span = std::min(span, writes_until_.left());
    else if (has_ended_ && !posix::has_children()) span = milliseconds(0);
    if (!from_gate_.empty()) span = std::min(span, from_gate_.front().until.left());
    if (ending_.begun() && (!has_ended_ || posix::has_children())) span = std::min(span, ending_.left());
    ::poll(polled.data(), polled.size(), static_cast<int>(span.count()));
  }

  bool is_writing() const {
    return !(output_.is_written() && errors_.is_written() && report_.empty()) && !writes_until_.passed();
  }

  void read_gate() {
    unsigned char numbers[64];
    ssize_t count = gate_ ? ::read(gate_.get(), numbers, sizeof numbers) : -1;
    if (count == 0) {  // the gate was killed
      gate_.reset();
      end(SIGTERM, milliseconds(0));
    }
    for (ssize_t at = 0; at < count; ++at) {
      from_gate_.push_back({numbers[at], Clock::now(), Deadline::after(time_to_get_it_too)});
      if (asks_for_the_end(numbers[at])) was_asked_ = was_asked_ || !has_ended_;
    }
  }

  void take_own_signals() {
    while (auto event = signals_.next())
      if (event->signal != SIGCHLD) came_to_all_at_[event->signal] = Clock::now();
  }

  // Returns true if the keeper's copy of the signal came since this time. Not the time when the keeper looks counts,
  // because that may be late on a busy machine.
  bool came_to_all_since(Clock::time_point since, int signal) const {
    auto came = came_to_all_at_.find(signal);
    return came != came_to_all_at_.end() && came->second > since;
  }

  void hand_on() {
    for (; !from_gate_.empty() && from_gate_.front().until.passed(); from_gate_.pop_front()) {
      const auto& [signal, came, until] = from_gate_.front();
      const bool came_to_all = came_to_all_since(came - time_to_get_it_too, signal);
      if (asks_for_the_end(signal)) end(signal, grace_, came_to_all);
      else if (!has_ended_ && !came_to_all) signal_rank(rank_, group_, signal);
    }
  }

  static bool asks_for_the_end(int signal) {
    return std::find(asking_for_the_end.begin(), asking_for_the_end.end(), signal) != asking_for_the_end.end();
  }

  void end(int signal, milliseconds grace, bool is_sent = false) {
    was_asked_ = was_asked_ || !has_ended_;
    stays_until_ = Deadline::after(milliseconds(0));
    writes_until_ = Deadline::after(grace + time_to_write);
    ending_.begin(signal, grace, is_sent);
  }

  void reap() {
    int status = 0;
    while (pid_t child = ::waitpid(-1, &status, WNOHANG)) {
      if (child < 0 && errno == EINTR) continue;
      if (child < 0) break;
      if (child != rank_ || has_ended_) continue;
      if (auto left = rank_left_by(group_, status)) rank_ = *left;
      else report(status);
    }
  }

  void report(int status) {
    has_ended_ = true;
    wait_status_ = status;
    const auto since = Clock::now() - 2 * time_to_get_it_too;
    was_asked_ = was_asked_ || std::any_of(asking_for_the_end.begin(), asking_for_the_end.end(),
                                           [&](int signal) { return came_to_all_since(since, signal); });
    RankReport report{rank_, status, was_asked_, 0, posix::host_name()};
    report.at_ns = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
    report_ = packet_of(report);
    output_.finish();
    if (status != 0 && !was_asked_ && !wants_another_run(status))
      stays_until_ = Deadline::after(time_for_other_reports);
    ending_.begin(SIGTERM, grace_);
  }

  // The report is sent last, because a reader may take it for the end. It is sent after all other output, because no
  // event comes once that output is written.
  void send_report() {
    if (report_.empty() || !output_.is_written()) return;
    errors_.finish(std::exchange(report_, {}));
  }

  // Reads what the rank's own children wrote after the rank's end.
  void take_what_the_last_wrote() {
    if (!has_ended_ || has_taken_all_ || posix::has_children()) return;
    has_taken_all_ = true;
    output_.finish();
    errors_.finish();
  }

  milliseconds grace_;
  posix::FileDescriptor gate_;  // the pipe from the gate, which brings each signal as a byte
  struct FromGate {
    int signal;
    Clock::time_point came;
    Deadline until;  // the time when the signal is passed on
  };
  std::deque<FromGate> from_gate_;
  std::map<int, Clock::time_point> came_to_all_at_;  // signals of which the keeper got a copy
  posix::SignalReader signals_;
  PackedOutput output_, errors_;
  std::optional<PackedInput> input_;
  pid_t group_ = 0;  // the rank's process group
  pid_t rank_ = 0;
  bool has_ended_ = false, was_asked_ = false, has_taken_all_ = false;
  int wait_status_ = 0;
  std::string report_;
  Deadline stays_until_ = Deadline::after(milliseconds(0)), writes_until_ = Deadline::never();
  // Hydra takes the end of this connection for a failure of the rank. Therefore the keeper holds the connection until
  // it has reported the rank's end.
  int pmi_ = Environment::of_this_process().number("PMI_FD").value_or(-1);
  Ending ending_;
};

// Returns only when the keeper has ended.
int serve_as_gate(pid_t keeper, const posix::FileDescriptor& to_keeper, posix::SignalReader& signals, pid_t launcher) {
  posix::FileDescriptor launcher_life = posix::handle_of_process(launcher);
  close_own_descriptors({STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO},
                        {to_keeper.get(), signals.descriptor(), launcher_life.get()});
  auto hand_on = [&](int signal) {
    auto number = static_cast<unsigned char>(signal);
    (void)!::write(to_keeper.get(), &number, 1);
  };
  int status = 0;
  while (::waitpid(keeper, &status, WNOHANG) != keeper) {
    pollfd polled[] = {{signals.descriptor(), POLLIN, 0}, {launcher_life.get(), POLLIN, 0}};
    ::poll(polled, 2, -1);
    while (auto event = signals.next())
      if (event->signal != SIGCHLD) hand_on(event->signal);
    if (polled[1].revents != 0) {
      hand_on(SIGTERM);
      launcher_life.reset();
    }
  }
  Ending ending;  // ends what a killed keeper left behind
  ending.begin(SIGTERM, milliseconds(0));
  while (posix::has_children()) {
    ending.step();
    if (::waitpid(-1, nullptr, WNOHANG) <= 0) ::poll(nullptr, 0, 20);
  }
  return end_like(status);
}

int cannot_start(const char* step) {
  std::fprintf(stderr, "horovodrun: the keeper of a rank cannot start: %s: %s\n", step, errno_text(errno).c_str());
  return 1;
}

std::string label_of_this_rank() {
  auto launch = bootstrap::innermost_launch(Environment::of_this_process());
  return launch && launch->rank >= 0 ? label_of(launch->rank) : "";
}

// Only rank 0 gets input.
std::optional<PackedInput> open_input() {
  auto launch = bootstrap::innermost_launch(Environment::of_this_process());
  if (!launch || launch->rank == 0)
    if (auto input = PackedInput::open()) return std::move(*input);
  posix::FileDescriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (nothing) ::dup2(nothing.get(), STDIN_FILENO);
  return std::nullopt;
}

}  // namespace

int run_rank_keeper(char** arguments) {
  pid_t launcher = ::getppid();
  std::string_view manner = arguments[1];
  KeeperOrders orders{milliseconds(number_in<int>(arguments[0]).value_or(0)), manner.starts_with(packed_input),
                      manner.ends_with(with_labels)};
  char** command = arguments + 2;
  for (char** word = command; *word != nullptr; ++word) *word += std::strlen(*word) - unescape_colon(*word).size();
  posix::SignalState before = posix::SignalState::of_this_process();
  auto signals = posix::SignalReader::open(handled);
  if (!signals) return cannot_start("signalfd");
  if (!posix::become_subreaper()) return cannot_start("adopting what a rank leaves");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return cannot_start("pipe");
  posix::FileDescriptor from_gate(ends[0]), to_keeper(ends[1]);
  ::fcntl(from_gate.get(), F_SETFL, O_NONBLOCK);
  ::signal(SIGPIPE, SIG_IGN);
  pid_t keeper = ::fork();
  if (keeper < 0) return cannot_start("fork");
  if (keeper != 0) {
    from_gate.reset();
    return serve_as_gate(keeper, to_keeper, *signals, launcher);
  }
  to_keeper.reset();
  ::setsid();
  auto own_signals = posix::SignalReader::open(handled);
  if (!own_signals || !posix::become_subreaper()) ::_exit(cannot_start("adopting what a rank leaves"));
  const std::string label = orders.labels ? label_of_this_rank() : "";
  auto output = PackedOutput::open(STDOUT_FILENO, label), errors = PackedOutput::open(STDERR_FILENO, label);
  if (!output || !errors) ::_exit(cannot_start("pipe"));
  auto input = orders.packs_input ? open_input() : std::nullopt;
  Keeper rank_keeper(orders, std::move(from_gate), std::move(*own_signals), std::move(*output), std::move(*errors),
                     std::move(input));
  ::_exit(rank_keeper.keep(command, before));
}

std::vector<std::string> below_a_keeper(const std::string& horovodrun, const KeeperOrders& orders,
                                        const std::vector<std::string>& command) {
  std::vector<std::string> words = {horovodrun, rank_keeper_flag, std::to_string(orders.grace.count()),
                                    std::string(orders.packs_input ? packed_input : input_as_it_comes)};
  if (orders.labels) words.back() += with_labels;
  for (const std::string& word : command) words.push_back(escape_colon(word));
  return words;
}

}  // namespace hvd::launcher
