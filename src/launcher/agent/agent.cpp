// What the agent does in each of its states:
//  1. serving. On Prepare it takes its lifeline (on another host), shares out the processors and reports that it is
//     ready. Then it starts ranks as they are ordered, and reports for each whether it was started. It relays the
//     ranks' output as long as it has credit. Everything else it sends at once, so that a blocked terminal does not
//     hide the failure of a rank. It reaps every child, its own and adopted ones. It reports the end of a rank together
//     with what the memory control group says. It also reports that a rank was stopped.
//  2. ending, after End: it ends all processes below it (ending.hpp).
//  3. draining: no child is left, but not all of the ranks' output is sent.
//  4. waiting: it has reported AllEnded and waits for Dismiss.
//  5. orphaned: horovodrun is gone, or horovodrun's host is gone, or nobody can tell. The agent ends all processes
//     below it, throws their output away and removes the session's folder.
//  6. dismissed: it exits.
#include "launcher/agent/agent.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "launcher/agent/audience.hpp"
#include "launcher/agent/binding.hpp"
#include "launcher/agent/ending.hpp"
#include "launcher/agent/rank_environment.hpp"
#include "launcher/agent/rank_process.hpp"
#include "launcher/agent/rank_streams.hpp"
#include "launcher/wire/lifeline.hpp"
#include "native/posix/machine/cgroup.hpp"
#include "native/posix/machine/host_identity.hpp"
#include "native/posix/processes/process.hpp"
#include "native/posix/processes/process_end.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

class Agent {
 public:
  Agent(HorovodrunChannel channel, const AgentSettings& settings, posix::SignalReader signals)
      : settings_(settings),
        channel_(std::move(channel)),
        signals_(std::move(signals)),
        group_at_start_(posix::read_memory_group()) {}

  int run() {
    while (state_ != State::dismissed) {
      wait();
      for (const Order& order : channel_.pump()) std::visit([this](const auto& each) { obey(each); }, order);
      if (channel_.closed()) be_orphaned();
      read_signals();
      for (RankProcess& rank : ranks_) read_start_report(rank);
      for (RankProcess& rank : ranks_) input_.relay(rank, channel_);
      relay_output();
      if (has_to_act()) ending_.step();
      finish_if_none_is_left();
      channel_.flush();
    }
    return is_horovodrun_lost_ ? exit_code_if_horovodrun_is_lost : 0;
  }

 private:
  // There is one obey() for each order.
  void obey(const Prepare& order) {
    grace_ = milliseconds(order.grace_ms);
    tells_bindings_ = order.tells_bindings;
    if (!order.lifeline.empty()) {
      auto lifeline = take_lifeline(order.lifeline, order.lifeline_token, milliseconds(order.lifeline_patience_ms),
                                    Deadline::after(milliseconds(order.dial_ms)));
      if (!lifeline) return channel_.send(NotReady{lifeline.error().message});
      lifeline_ = std::move(*lifeline);
    }
    std::vector<std::string> notices;
    if (order.ranks > 0) shares_ = share_processors(order.ranks, environment_, notices);
    for (const std::string& notice : notices) channel_.send(Said{notice});
    channel_.send(Ready{posix::host_name(), posix::node_id(), ::getpid()});
  }
  void obey(StartRank order) {
    auto share_at = static_cast<std::size_t>(order.local_rank);
    Share share = share_at < shares_.size() ? shares_[share_at] : Share{};
    if (tells_bindings_ && !order.is_site_launcher) channel_.send(Said{order.title + ": " + share.description});
    complete_environment(order, share, settings_.own_environment);
    if (order.program.find('/') == std::string::npos) {
      int code = 0;
      auto program = posix::find_program(order.program, path_of(order.environment), code);
      if (!program) return channel_.send(NotStarted{order.rank, 0, program.error().message, code});
      order.program = std::move(*program);
    }
    if (!order.is_site_launcher) add_bridge(order);
    auto started = start_rank(order, share.cpus, settings_.inheritance);
    if (!started) return channel_.send(NotStarted{order.rank, 0, started.error().message});
    order_of_ends_.add(started->process);
    ranks_.push_back(std::move(*started));
  }
  void obey(const Input& input) { input_.add(input); }
  void obey(const Ask&) {
    read_signals();
    channel_.send(Answered{});
  }
  void obey(const Forward& order) {
    read_signals();  // a rank may have lost the shell above it
    for (const RankProcess& rank : ranks_) {
      if (rank.process <= 0) continue;
      if (rank.is_site_launcher) ::kill(rank.process, order.signal);
      else signal_rank(rank.process, rank.group, order.signal);
    }
  }
  void obey(const StopRank& order) {
    read_signals();
    for (const RankProcess& rank : ranks_)
      if (rank.rank == order.rank && rank.group > 0) ::kill(-rank.group, order.signal);
  }
  void obey(const End& order) {
    if (state_ == State::serving) state_ = State::ending;
    ending_.begin(order.signal, milliseconds(order.grace_ms));
  }
  void obey(const Credit& credit) { output_.give_credit(credit.bytes); }
  void obey(const Dismiss&) { state_ = State::dismissed; }

  void wait() {
    polled_.assign({{channel_.descriptor(), channel_.wants(), 0}, {signals_.descriptor(), POLLIN, 0}});
    if (is_orphaned()) polled_[0].fd = -1;
    else if (channel_.writer() != channel_.descriptor() && channel_.has_unsent())
      polled_.push_back({channel_.writer(), POLLOUT, 0});
    watched_ = polled_.size();
    if (!is_orphaned()) {
      polled_.push_back({settings_.leash, POLLIN, 0});
      polled_.push_back({lifeline_.get(), POLLIN, 0});
    }
    for (RankProcess& rank : ranks_) {
      if (rank.start_report) polled_.push_back({rank.start_report.get(), POLLIN, 0});
      output_.add_to(polled_, rank);
      input_.add_to(polled_, rank);
    }
    ::poll(polled_.data(), polled_.size(), has_to_act() ? static_cast<int>(ending_.left().count()) : -1);
    if (is_orphaned() || (polled_[watched_].revents == 0 && polled_[watched_ + 1].revents == 0)) return;
    be_orphaned(/*is_told=*/polled_[watched_].revents != 0);
  }

  void be_orphaned(bool is_told = false) {
    if (is_orphaned() || state_ == State::dismissed) return;
    is_horovodrun_lost_ = !is_told;
    state_ = State::orphaned;
    output_.throw_away();
    channel_.close();
    lifeline_.reset();
    ending_.begin(SIGTERM, grace_);
  }

  // True if processes have to be ended. In the other states the agent only waits. Once no process is left, none can
  // come, because horovodrun starts no ranks after End.
  bool has_to_act() const { return state_ == State::ending || is_orphaned(); }
  bool is_orphaned() const { return state_ == State::orphaned; }

  void read_signals() {
    while (auto event = signals_.next()) {
      if (event->signal != SIGCHLD) channel_.send(Told{event->signal});
      // Linux before 5.3 has no handles of processes. There only the signal tells which child ended first: if several
      // children end, one signal is kept, and it names the first child.
      else if (event->sender > 0 && !order_of_ends_.knows(event->sender)) reap(event->sender);
    }
    pid_t seen = 0;
    for (;;) {
      while (auto child = order_of_ends_.next()) reap(*child);
      siginfo_t news{};
      if (::waitid(P_ALL, 0, &news, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) != 0 || news.si_pid == 0) return;
      bool has_just_ended = news.si_code != CLD_STOPPED && order_of_ends_.knows(news.si_pid);
      // other children may have ended before it
      if (has_just_ended && std::exchange(seen, news.si_pid) != news.si_pid) continue;
      reap(news.si_pid);
    }
  }

  void reap(pid_t child) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG | WUNTRACED) != child) return;
    if (WIFSTOPPED(status)) report_stop(child, WSTOPSIG(status));
    else report_end(child, status);
  }

  void report_stop(pid_t child, int signal) {
    for (const RankProcess& rank : ranks_)
      if (rank.process == child) channel_.send(Stopped{rank.rank, signal, child});
  }

  void report_end(pid_t child, int status) {
    auto rank = std::find_if(ranks_.begin(), ranks_.end(), [&](const RankProcess& r) { return r.process == child; });
    if (rank == ranks_.end()) return;  // a process that the agent has adopted
    read_start_report(*rank);
    rank->process = 0;
    if (auto left = rank_left_by(rank->group, status)) {
      rank->process = *left;
      order_of_ends_.add(*left);
      return;
    }
    Exited exited;
    exited.rank = rank->rank;
    exited.wait_status = status;
    exited.at_ns = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
    if (WIFSIGNALED(status)) {
      auto now = posix::read_memory_group();
      exited.group_known = now && group_at_start_ && now->path == group_at_start_->path;
      if (exited.group_known) {
        exited.oom_kills = now->oom_kills - group_at_start_->oom_kills;
        exited.limit_bytes = now->limit_bytes.value_or(0);
        exited.group = now->path;
      }
    }
    channel_.send(exited);
  }

  void read_start_report(RankProcess& rank) {
    if (!rank.start_report) return;
    StartFailure failure;
    ssize_t count = ::read(rank.start_report.get(), &failure, sizeof failure);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    rank.start_report.reset();
    if (count == static_cast<ssize_t>(sizeof failure))
      channel_.send(NotStarted{rank.rank, failure.error, StartFailure::describe(failure.step)});
    else channel_.send(Started{rank.rank, rank.process});
  }

  bool relay_output() {
    bool any = false;
    for (RankProcess& rank : ranks_) any = output_.relay(rank, channel_) || any;
    return any;
  }

  void finish_if_none_is_left() {
    if (has_to_act() && posix::has_children()) return;
    if (is_orphaned()) {
      std::error_code ignored;
      if (!settings_.session_folder.empty()) std::filesystem::remove_all(settings_.session_folder, ignored);
      state_ = State::dismissed;
    }
    if (state_ == State::ending) state_ = State::draining;
    if (state_ == State::draining) drain();
  }

  // Reads what is left in the pipes. No process is left that could write, so the pipes hold all that will come, even if
  // a foreign process keeps an end open.
  void drain() {
    while (output_.may_relay() && relay_output()) {
    }
    if (!output_.may_relay()) return;
    for (RankProcess& rank : ranks_)
      for (auto& pipe : rank.output) pipe.reset();
    state_ = State::waiting;
    channel_.send(AllEnded{});
  }

  const AgentSettings& settings_;
  HorovodrunChannel channel_;
  posix::SignalReader signals_;
  std::optional<posix::MemoryGroup> group_at_start_;
  std::vector<RankProcess> ranks_;
  posix::OrderOfEnds order_of_ends_;
  std::vector<pollfd> polled_;
  std::size_t watched_ = 0;  // the places of the leash and the lifeline in polled_
  Environment environment_ = Environment::of_this_process();
  std::vector<Share> shares_;
  posix::FileDescriptor lifeline_;
  milliseconds grace_ = settings_.grace;
  bool tells_bindings_ = false;
  RankInput input_;
  RankOutput output_;
  Ending ending_;
  enum class State { serving, ending, draining, waiting, orphaned, dismissed };
  State state_ = State::serving;
  bool is_horovodrun_lost_ = false;  // not: the agent was told to end
};

}  // namespace

int run_agent(HorovodrunChannel channel, const AgentSettings& settings) {
  ::prctl(PR_SET_NAME, "horovod-agent", 0, 0, 0);
  auto signals = posix::SignalReader::open({SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2},
                                           posix::ChildNews::ends_and_stops);
  auto subreaper = posix::become_subreaper();
  if (!signals || !subreaper) {
    std::fprintf(stderr, "horovodrun: the agent cannot start: %s\n",
                 (signals ? subreaper.error() : signals.error()).message.c_str());
    return 1;
  }
  return Agent(std::move(channel), settings, std::move(*signals)).run();
}

}  // namespace hvd::launcher
