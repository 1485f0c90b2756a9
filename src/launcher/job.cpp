// The life of a job, as horovodrun sees it:
//  1. The agent is forked while there is a single thread and nothing that it could inherit.
//  2. Wire-up and binding are decided; one Launch per rank goes to the agent.
//  3. Output is printed, signals are forwarded, until all ranks have ended, or one failed, or somebody wants the end.
//  The
//     first of these is the one that counts; what ranks do after they were told to end is no failure.
//  4. End goes to the agent, which ends whatever is left (also after success: what ranks left in the background).
//  5. AllGone: the unfinished lines are printed, then the verdict; the agent is dismissed, the folder removed.
//  Should the agent be killed, its children become ours, and we end them here (step 4 without it).
#include "launcher/job.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>

#include "launcher/agent.hpp"
#include "launcher/binding.hpp"
#include "launcher/ending.hpp"
#include "launcher/first_failure.hpp"
#include "launcher/rank_environment.hpp"
#include "launcher/session_folder.hpp"
#include "launcher/wire_up.hpp"
#include "native/posix/host_identity.hpp"
#include "native/posix/process.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

// Beyond the grace: for SIGKILL to take effect, and for a reader of our output that is gone quiet after the end was
// wanted.
constexpr milliseconds patience{3000};

class Job {
 public:
  Job(const JobOptions& options, const Environment& environment)
      : options_(options),
        environment_(without_traces_of_launchers(environment)),
        host_(posix::host_name()),
        folder_(environment, notices_),
        printer_(options.printer),
        ranks_(options.placements.size()) {}

  JobEnd run() {
    if (auto started = start(); !started) {
      say(started.error().message);
      failed_to_start_ = true;
      if (agent_.process > 0) begin_end(SIGTERM);
    }
    while (agent_.process > 0 && !finished()) {
      wait();
      std::vector<Message> messages = agent_.channel.pump();
      for (const Message& message : messages) std::visit([this](const auto& m) { hear(m); }, message);
      // Much output may come on the way to the end; only silence is a reason to give up.
      if (give_up_at_ && !messages.empty()) give_up_at_ = std::max(*give_up_at_, Clock::now() + patience);
      if (agent_.channel.closed()) take_over();
      read_signals();
      if (wire_up_ != nullptr) read_requests();
      give_credit();
      watch_readers();
      if (own_ending_.begun()) end_what_was_taken_over();
    }
    return close();
  }

 private:
  struct RankState {
    int process = 0;
    bool ended = false;
    int wait_status = 0;
  };

  Status start() {
    started_at_ = Clock::now();
    AgentSettings settings{
        folder_.path(), {posix::SignalState::of_this_process(), posix::descriptor_limit()}, options_.grace};
    for (const std::string& notice : notices_) say(notice);
    HVD_RETURN_IF_ERROR(raise_descriptor_limit());
    if (!options_.printer.folder.empty()) HVD_RETURN_IF_ERROR(printer_.open_files());
    auto signals =
        posix::SignalReader::open({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP, SIGCHLD});
    if (!signals) return signals.error();
    signals_.emplace(std::move(*signals));
    ::signal(SIGPIPE, SIG_IGN);
    drop_traces_of_launchers();
    HVD_RETURN_IF_ERROR(posix::become_subreaper());
    auto agent = start_local_agent(settings);
    if (!agent) return agent.error();
    agent_ = std::move(*agent);
    tell_time("agent forked");
    HVD_RETURN_IF_ERROR(wire_up());
    return launch();
  }

  // Of each rank the agent has three pipes open while it starts; of each we have two connections (PMIx, the store) and
  // up to two files (--output-filename).
  Status raise_descriptor_limit() const {
    constexpr std::uint64_t our_own = 32;
    std::uint64_t needed = 4 * ranks_.size() + our_own;
    posix::DescriptorLimit limit = posix::descriptor_limit();
    if (limit.soft >= needed) return {};
    if (limit.hard < needed)
      return Error(ErrorCode::system, "-np " + std::to_string(ranks_.size()) + " needs " + std::to_string(needed) +
                                          " open files, but this machine allows " + std::to_string(limit.hard) +
                                          " (ulimit -Hn): start fewer ranks, or have the limit raised");
    posix::set_descriptor_limit({needed, limit.hard});
    return {};
  }

  Status wire_up() {
    std::vector<std::string> notices;
    auto wired = WireUp::start({"horovodrun-" + folder_.path().substr(folder_.path().rfind('-') + 1),
                                static_cast<int>(ranks_.size()), host_, folder_.make()},
                               environment_, notices);
    if (!wired) return wired.error();
    wire_up_ = std::move(*wired);
    for (const std::string& notice : notices) say(notice);
    tell_time(wire_up_->has_pmix() ? "PMIx server and own store ready" : "own store ready");
    return {};
  }

  Status launch() {
    std::vector<std::string> notices;
    std::vector<Share> shares = share_processors(static_cast<int>(ranks_.size()), environment_, notices);
    for (const std::string& notice : notices) say(notice);
    tell_time("binding decided");
    char folder[4096];
    for (std::size_t at = 0; at < ranks_.size(); ++at) {
      const Placement& placement = options_.placements[at];
      auto wiring = wire_up_->variables_for(placement.rank);
      if (!wiring) return wiring.error();
      const Share& share = shares[at];
      if (options_.verbose) say("rank " + std::to_string(at) + ": " + share.description);
      Launch order;
      order.rank = placement.rank;
      order.program = options_.program;
      order.command = options_.command;
      order.environment = environment_of(environment_, {placement, static_cast<int>(ranks_.size()), share.threads,
                                                        options_.variables, std::move(*wiring)});
      if (::getcwd(folder, sizeof folder) != nullptr) order.folder = folder;
      order.cpus = share.cpus;
      order.inherits_input = at == 0;
      agent_.channel.send(order);
    }
    agent_.channel.flush();
    tell_time("launch orders sent");
    return {};
  }

  void wait() {
    std::array<pollfd, 6> polled{{
        {agent_.channel.closed() ? -1 : agent_.channel.descriptor(), agent_.channel.wants(), 0},
        {signals_ ? signals_->descriptor() : -1, POLLIN, 0},
        {wire_up_ != nullptr ? wire_up_->store_descriptor() : -1, POLLIN, 0},
        {wire_up_ != nullptr ? wire_up_->abort_descriptor() : -1, POLLIN, 0},
        // Also without anything to write: a reader that has gone (| head) ends the job even if the ranks are silent.
        {watched(Stream::standard_output), wanted(Stream::standard_output), 0},
        {watched(Stream::standard_error), wanted(Stream::standard_error), 0},
    }};
    milliseconds span = own_ending_.left();
    if (give_up_at_ && Clock::now() < *give_up_at_)
      span = std::min(span, std::chrono::ceil<milliseconds>(*give_up_at_ - Clock::now()));
    ::poll(polled.data(), polled.size(), static_cast<int>(span.count()));
    if ((polled[4].revents & (POLLERR | POLLNVAL)) != 0) printer_.sink(Stream::standard_output).abandon();
    if ((polled[5].revents & (POLLERR | POLLNVAL)) != 0) printer_.sink(Stream::standard_error).abandon();
  }
  int watched(Stream stream) {
    Sink& sink = printer_.sink(stream);
    return sink.broken() ? -1 : sink.descriptor();
  }
  short wanted(Stream stream) { return printer_.sink(stream).pending() > 0 ? POLLOUT : 0; }

  // What only horovodrun says is not for us.
  template <typename Order>
  void hear(const Order&) {}
  void hear(const Started& started) {
    ranks_[index(started.rank)].process = started.process;
    if (++started_ranks_ == ranks_.size()) tell_time("all ranks execute the command");
  }
  void hear(const NotStarted& report) {
    FirstFailure failure;
    failure.kind = FirstFailure::Kind::not_started;
    failure.rank = report.rank;
    failure.text = report.error == 0 ? report.step : system_error(report.step, report.error).message;
    if (report.error == E2BIG)
      failure.text +=
          " (its arguments and its environment together are too long: unset what it does not need, or "
          "raise the limit, which is a quarter of ulimit -s)";
    failure.code = report.error == ENOENT ? 127 : 126;
    fail(std::move(failure));
    ranks_[index(report.rank)].process = -1;  // its end is no news
  }
  void hear(const Output& output) {
    owed_credit_ += static_cast<std::uint32_t>(output.bytes.size());
    printer_.add(output);
  }
  void hear(const Exited& end) {
    RankState& rank = ranks_[index(end.rank)];
    bool was_started = rank.process >= 0;
    rank.ended = true;
    rank.wait_status = end.wait_status;
    if (wire_up_ != nullptr) wire_up_->rank_ended(end.rank, describe_end(end.wait_status));
    if (end.wait_status != 0 && was_started) {
      FirstFailure failure;
      failure.rank = end.rank;
      failure.process = rank.process;
      failure.end = end;
      fail(std::move(failure));
    }
    if (std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& r) { return r.ended; })) begin_end(SIGTERM);
  }
  // Nobody else would say so where nobody waits for that rank. Those that the user stopped by Ctrl-Z are no news.
  void hear(const Stopped& stop) {
    if (ending_ || stop.signal == SIGTSTP) return;
    std::string process = std::to_string(ranks_[index(stop.rank)].process);
    say("rank " + std::to_string(stop.rank.value) + " on host " + host_ + " (process " + process +
        ") was stopped by signal " + std::to_string(stop.signal) + " (" + posix::name_of_signal(stop.signal) +
        "): the job waits for it to be continued (kill -CONT " + process + ")");
  }
  void hear(const Told& told) { end_by_signal(told.signal); }
  void hear(const AllGone&) { all_gone_ = true; }

  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank.value); }

  void fail(FirstFailure failure) {
    if (ending_) return;  // it was told to end, or another one failed before
    failure.host = host_;
    if (failure.kind == FirstFailure::Kind::ended)
      printer_.say("Process " + std::to_string(failure.rank.value) + " exit with status code " +
                   std::to_string(exit_code_of(failure)) + ".");
    first_failure_ = std::move(failure);
    begin_end(SIGTERM);
  }

  void begin_end(int signal) {
    if (ending_) return;
    ending_ = true;
    give_up_at_ = Clock::now() + options_.grace + patience;
    agent_.channel.send(End{signal, static_cast<std::int32_t>(options_.grace.count())});
    agent_.channel.flush();
  }

  void end_by_signal(int signal) {
    if (ended_by_signal_ != 0 || (ending_ && !all_ranks_succeeded())) {
      // Wanted a second time: no grace any more.
      if (own_ending_.begun()) own_ending_.begin(SIGKILL, milliseconds(0));
      agent_.channel.send(End{SIGKILL, 0});
      give_up_at_ = Clock::now() + patience;
      return;
    }
    ended_by_signal_ = signal;
    say(posix::name_of_signal(signal) + " received: ending the job");
    begin_end(signal);
  }

  void read_signals() {
    while (auto event = signals_ ? signals_->next() : std::nullopt) {
      switch (event->signal) {
        case SIGINT:
        case SIGTERM:
        case SIGHUP: end_by_signal(event->signal); break;
        case SIGCHLD: break;  // the agent's end shows at the channel; adopted children are reaped after that
        case SIGTSTP:
          agent_.channel.send(Forward{SIGTSTP});
          agent_.channel.flush();
          ::kill(::getpid(), SIGSTOP);
          break;
        default: agent_.channel.send(Forward{event->signal});
      }
    }
    agent_.channel.flush();
  }

  void read_requests() {
    for (AbortRequest& request : wire_up_->serve()) {
      if (index(request.rank) >= ranks_.size()) continue;
      FirstFailure failure;
      failure.kind = FirstFailure::Kind::asked_for_end;
      failure.rank = request.rank;
      failure.process = ranks_[index(request.rank)].process;
      failure.text = std::move(request.reason);
      failure.code = request.status > 0 && request.status < 256 ? request.status : 1;
      fail(std::move(failure));
    }
  }

  void give_credit() {
    printer_.sink(Stream::standard_output).flush();
    printer_.sink(Stream::standard_error).flush();
    if (owed_credit_ == 0 || printer_.pending() > output_window_bytes) return;
    agent_.channel.send(Credit{owed_credit_});
    agent_.channel.flush();
    owed_credit_ = 0;
  }

  // A reader of our output that has gone (| head) ends the job, as a program that writes to such a pipe is ended.
  void watch_readers() {
    if (!printer_.sink(Stream::standard_output).broken() && !printer_.sink(Stream::standard_error).broken()) return;
    reader_lost_ = true;
    begin_end(SIGTERM);
  }

  // The agent has gone without being dismissed: somebody killed it. Its children are ours now.
  void take_over() {
    if (own_ending_.begun() || all_gone_) return;
    say("the agent (process " + std::to_string(agent_.process) + ") that started the ranks is gone: ending the job");
    agent_lost_ = true;
    ending_ = true;
    give_up_at_ = Clock::now() + options_.grace + patience;
    own_ending_.begin(SIGTERM, options_.grace);
  }

  void end_what_was_taken_over() {
    own_ending_.step();
    int status = 0;
    while (::waitpid(-1, &status, WNOHANG) > 0) {
    }
    if (!posix::has_children()) all_gone_ = true;
  }

  bool finished() {
    if (all_gone_ && printer_.pending() == 0) return true;
    if (!give_up_at_ || Clock::now() < *give_up_at_) return false;
    // A slow reader of our output is waited for, unless the user wants the end.
    return printer_.pending() == 0 || ended_by_signal_ != 0;
  }

  bool all_ranks_succeeded() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& r) { return r.ended && r.wait_status == 0; });
  }
  // All ended in their own way: none by a signal.
  bool all_ranks_exited() const {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const RankState& r) { return r.ended && WIFEXITED(r.wait_status); });
  }

  JobEnd close() {
    if (!all_gone_ && agent_.process > 0)
      say("processes of the job could not be ended within " +
          std::to_string((options_.grace + patience).count() / 1000) +
          " s (they hang in the kernel?); the agent (process " + std::to_string(agent_.process) + ") goes on trying");
    printer_.finish();
    wire_up_.reset();
    if (all_gone_) folder_.remove();
    if (first_failure_) printer_.say(describe(*first_failure_, printer_.last_errors(first_failure_->rank)));
    flush(ended_by_signal_ != 0 ? Deadline::after(patience) : Deadline::never());
    if (all_gone_ && !agent_lost_ && agent_.process > 0) {
      agent_.channel.send(Dismiss{});
      agent_.channel.flush();
      ::waitpid(agent_.process, nullptr, 0);
    }
    return verdict();
  }

  JobEnd verdict() const {
    if (first_failure_) return {exit_code_of(*first_failure_), 0};
    if (failed_to_start_) return {1, 0};
    if (ended_by_signal_ != 0) {
      // Ranks that caught the signal and ended in their own way (a checkpoint, a code that asks to be queued again)
      // decide.
      if (!all_ranks_exited()) return {128 + ended_by_signal_, ended_by_signal_};
      auto failed = std::find_if(ranks_.begin(), ranks_.end(), [](const RankState& r) { return r.wait_status != 0; });
      return {failed == ranks_.end() ? 0 : WEXITSTATUS(failed->wait_status), 0};
    }
    if (agent_lost_) return {128 + SIGKILL, 0};
    if (reader_lost_ && !all_ranks_succeeded()) return {128 + SIGPIPE, SIGPIPE};
    return {all_gone_ ? 0 : 1, 0};
  }

  void flush(Deadline deadline) {
    while (!deadline.passed()) {
      printer_.sink(Stream::standard_output).flush();
      printer_.sink(Stream::standard_error).flush();
      if (printer_.pending() == 0) return;
      std::array<pollfd, 2> polled{{{watched(Stream::standard_output), wanted(Stream::standard_output), 0},
                                    {watched(Stream::standard_error), wanted(Stream::standard_error), 0}}};
      ::poll(polled.data(), polled.size(), static_cast<int>(std::min<std::int64_t>(deadline.left().count(), 1000)));
    }
  }

  void say(const std::string& text) { printer_.say("horovodrun: " + text); }
  void tell_time(const char* what) {
    if (!options_.verbose) return;
    auto span = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - started_at_).count();
    say(std::string(what) + " after " + std::to_string(span / 1000) + "." + std::to_string(span / 100 % 10) + " ms");
  }

  const JobOptions& options_;
  Environment environment_;
  std::string host_;
  std::vector<std::string> notices_;  // of what was found before there was a printer
  SessionFolder folder_;
  Printer printer_;
  std::optional<posix::SignalReader> signals_;
  LocalAgent agent_;
  std::unique_ptr<WireUp> wire_up_;
  std::vector<RankState> ranks_;
  std::size_t started_ranks_ = 0;
  std::uint32_t owed_credit_ = 0;
  Clock::time_point started_at_;

  bool ending_ = false;
  std::optional<FirstFailure> first_failure_;
  int ended_by_signal_ = 0;
  bool failed_to_start_ = false, agent_lost_ = false, reader_lost_ = false;
  bool all_gone_ = false;
  Ending own_ending_;  // only after the agent was lost
  std::optional<Clock::time_point> give_up_at_;
};

}  // namespace

JobEnd run_job(const JobOptions& options, const Environment& environment) {
  return Job(options, environment).run();
}

}  // namespace hvd::launcher
