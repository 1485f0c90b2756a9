// The life of a job, as horovodrun sees it:
//  1. The agent of this machine is forked while there is a single thread and nothing that it could inherit; those of
//     other hosts are reached for, each by one command.
//  2. Wire-up is decided, every agent prepares itself. When all are ready, one Launch per rank goes to its agent.
//  3. Output is printed, signals are forwarded, until all ranks have ended, or one failed, or somebody wants the end.
//     The first of these is the one that counts; what ranks do after they were told to end is no failure.
//  4. End goes to the agent, which ends whatever is left (also after success: what ranks left in the background).
//  5. AllGone: the unfinished lines are printed, then the verdict; the agent is dismissed, the folder removed. Should
//     the agent of this machine be killed, its children become ours, and we end them here (step 4 without it). On
//     another host there is somebody who does that (remote_agent.hpp); a host that cannot be heard of any more counts
//     as gone, and its agent thinks the same of us.
#include "launcher/job.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "launcher/agent.hpp"
#include "launcher/ending.hpp"
#include "launcher/first_failure.hpp"
#include "launcher/host_link.hpp"
#include "launcher/input_relay.hpp"
#include "launcher/lifeline.hpp"
#include "launcher/rank_environment.hpp"
#include "launcher/remote_agent.hpp"
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
// For the other agents to say what failed on their hosts, after one has failed.
constexpr milliseconds time_to_answer{1000};

class Job {
 public:
  Job(const JobOptions& options, const Environment& environment)
      : options_(options),
        environment_(without_traces_of_launchers(environment)),
        host_(posix::host_name()),
        folder_(environment, notices_),
        printer_(options.printer),
        ranks_(options.placements.size()) {
    if (options.site) site_.emplace(*options.site->dialect, options.printer.size);
  }

  JobEnd run() {
    if (auto started = start(); !started) fail_to_start(started.error().message);
    while (!hosts_.empty() && !finished()) {
      wait();
      for (HostLink& host : hosts_) {
        std::vector<Message> messages = host.channel.pump();
        for (const Message& message : messages) std::visit([&](const auto& m) { hear(host, m); }, message);
        // Much output may come on the way to the end; only silence is a reason to give up.
        if (give_up_at_ && !messages.empty()) give_up_at_ = std::max(*give_up_at_, Clock::now() + patience);
      }
      read_signals();
      for (HostLink& host : hosts_) look_after(host);
      watch_lifelines();
      check_start();
      if (wire_up_ != nullptr) read_requests();
      settle_failure();
      hurry_site();
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
    HVD_RETURN_IF_ERROR(reach_hosts(settings));
    HVD_RETURN_IF_ERROR(wire_up());
    for (std::size_t at = 0; at < hosts_.size(); ++at) prepare(at);
    // Here is nobody who might not get ready.
    return lifelines_ == nullptr ? launch() : Status();
  }

  // The agent of this machine comes first, so that it inherits nothing of the others.
  Status reach_hosts(const AgentSettings& settings) {
    hosts_.resize(options_.hosts.size());
    std::size_t first_host = options_.placements.front().host_index;
    for (std::size_t at = 0; at < hosts_.size(); ++at) {
      if (!options_.hosts[at].reach.empty()) continue;
      auto agent = start_local_agent(settings, at == first_host);
      if (!agent) return agent.error();
      hosts_[at].name = host_;
      hosts_[at].is_here = true;
      hosts_[at].process = agent->process;
      hosts_[at].channel = std::move(agent->channel);
      tell_time("agent forked");
    }
    for (std::size_t at = 0; at < hosts_.size(); ++at) {
      const HostPlan& plan = options_.hosts[at];
      if (plan.reach.empty()) continue;
      if (options_.verbose) say("reaching for " + plan.name + ": " + joined(plan.reach));
      std::vector<std::string> command = plan.reach;
      command.push_back(remote_agent_command(options_.network.remote_program, options_.grace));
      auto link = reach_host(plan.name, command, settings.inheritance);
      if (!link) return link.error();
      hosts_[at] = std::move(*link);
      own_ending_.spare(hosts_[at].process);
    }
    for (const Placement& placement : options_.placements) hosts_[placement.host_index].ranks.push_back(placement.rank);
    if (hosts_[first_host].is_here) return {};
    // To read from a terminal in the background is to be an error, not to stop us.
    ::signal(SIGTTIN, SIG_IGN);
    input_.open();
    return {};
  }

  bool is_on_several_machines() const {
    return std::any_of(options_.hosts.begin(), options_.hosts.end(),
                       [](const HostPlan& h) { return !h.reach.empty(); });
  }

  void prepare(std::size_t at) {
    HostLink& host = hosts_[at];
    Prepare order;
    order.ranks = site_ ? 0 : static_cast<std::int32_t>(host.ranks.size());
    order.grace_ms = static_cast<std::int32_t>(options_.grace.count());
    order.tells_bindings = options_.verbose;
    if (!host.is_here) {
      order.lifeline = lifelines_->addresses();
      order.lifeline_token = lifelines_->token(at);
      order.lifeline_patience_ms = static_cast<std::int32_t>(options_.network.lifeline_patience.count());
      // Sooner than we give up, so that the agent can say why.
      order.dial_ms = static_cast<std::int32_t>(options_.network.start_timeout.count() / 2);
    }
    host.channel.send(order);
    host.channel.flush();
  }

  // Of each rank the agent has three pipes open while it starts; of each we have two connections (PMIx, the store) and
  // up to two files (--output-filename); of each other host a stream, complaints and a
  // lifeline.
  Status raise_descriptor_limit() const {
    constexpr std::uint64_t our_own = 32;
    std::uint64_t needed = 4 * (ranks_.size() + options_.hosts.size() - 1) + our_own;
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
    if (site_) return {};  // by the site's launcher
    if (is_on_several_machines()) {
      auto lifelines = Lifelines::open(
          {hosts_.size(), options_.network.interfaces, options_.network.ports, options_.network.lifeline_patience});
      if (!lifelines) return lifelines.error();
      lifelines_ = std::move(*lifelines);
      start_by_ = Deadline::after(options_.network.start_timeout);
    }
    std::vector<std::string> notices;
    WireUpOptions wanted{"horovodrun-" + folder_.path().substr(folder_.path().rfind('-') + 1),
                         static_cast<int>(ranks_.size()), host_, folder_.make()};
    wanted.is_on_several_hosts = is_on_several_machines();
    wanted.interfaces = options_.network.interfaces;
    wanted.ports = options_.network.ports;
    auto wired = WireUp::start(wanted, environment_, notices);
    if (!wired) return wired.error();
    wire_up_ = std::move(*wired);
    for (const std::string& notice : notices) say(notice);
    tell_time(wire_up_->has_pmix() ? "PMIx server and own store ready" : "own store ready");
    return {};
  }

  Status launch() {
    is_launched_ = true;
    start_by_ = Deadline::never();
    char folder[4096];
    if (::getcwd(folder, sizeof folder) == nullptr) folder[0] = '\0';
    if (site_) return launch_site(folder);
    Environment abroad = exportable(environment_);
    for (std::size_t at = 0; at < ranks_.size(); ++at) {
      const Placement& placement = options_.placements[at];
      HostLink& host = hosts_[placement.host_index];
      auto wiring = wire_up_->variables_for(placement.rank);
      if (!wiring) return wiring.error();
      Launch order;
      order.rank = placement.rank;
      order.program = options_.program;
      order.command = options_.command;
      order.environment =
          environment_of(host.is_here ? environment_ : abroad,
                         {placement, static_cast<int>(ranks_.size()), options_.variables, std::move(*wiring)});
      order.folder = folder;
      order.local_rank = placement.local_rank;
      if (at == 0) order.input = host.is_here ? InputFrom::agent : InputFrom::horovodrun;
      host.channel.send(order);
    }
    for (HostLink& host : hosts_) host.channel.flush();
    tell_time("launch orders sent");
    return {};
  }

  Status launch_site(const char* working_folder) {
    auto started = order_for_site(*options_.site, environment_, options_.variables, [this] { return folder_.make(); });
    if (!started) return started.error();
    Launch& order = *started;
    order.folder = working_folder;
    hosts_[0].channel.send(order);
    hosts_[0].channel.flush();
    if (options_.verbose) say("starting " + joined(order.command));
    return {};
  }

  // All hosts ready: off they go. Not all in time: that is the end.
  void check_start() {
    if (is_launched_ || ending_ || lifelines_ == nullptr) return;
    if (std::all_of(hosts_.begin(), hosts_.end(),
                    [](const HostLink& h) { return h.state == HostLink::State::ready; })) {
      tell_time("all hosts ready");
      Status possible = check_nodes(hosts_);
      if (possible) possible = launch();
      if (!possible) fail_to_start(possible.error().message);
    } else if (start_by_.passed()) {
      std::string text;
      for (const HostLink& host : hosts_)
        if (host.state != HostLink::State::ready)
          text += (text.empty() ? "" : "; ") + host.name + ": " + host.why_not(options_.network.remote_program);
      fail_to_start("not all hosts were ready within " + std::to_string(options_.network.start_timeout.count() / 1000) +
                    " s (--start-timeout sets another limit): " + text);
    }
  }

  void fail_to_start(const std::string& why) {
    if (!ending_) say(why);
    failed_to_start_ = true;
    for (HostLink& host : hosts_)
      if (host.process == 0) be_rid_of(host);
    begin_end(SIGTERM);
  }

  void wait() {
    // Also without anything to write: a reader that has gone (| head) ends the job even if the ranks are silent.
    polled_.assign({{watched(Stream::standard_output), wanted(Stream::standard_output), 0},
                    {watched(Stream::standard_error), wanted(Stream::standard_error), 0},
                    input_.wanted(),
                    {signals_ ? signals_->descriptor() : -1, POLLIN, 0},
                    {wire_up_ != nullptr ? wire_up_->store_descriptor() : -1, POLLIN, 0},
                    {wire_up_ != nullptr ? wire_up_->abort_descriptor() : -1, POLLIN, 0},
                    {lifelines_ != nullptr ? lifelines_->descriptor() : -1, POLLIN, 0}});
    for (const HostLink& host : hosts_) {
      polled_.push_back({host.channel.closed() ? -1 : host.channel.descriptor(), host.channel.wants(), 0});
      polled_.push_back({host.errors.get(), POLLIN, 0});
    }
    milliseconds span = std::min(own_ending_.left(), start_by_.left());
    for (const auto& time : {give_up_at_, gather_until_, site_ends_by_})
      if (time && Clock::now() < *time) span = std::min(span, std::chrono::ceil<milliseconds>(*time - Clock::now()));
    ::poll(polled_.data(), polled_.size(), static_cast<int>(span.count()));
    if ((polled_[0].revents & (POLLERR | POLLNVAL)) != 0) printer_.sink(Stream::standard_output).abandon();
    if ((polled_[1].revents & (POLLERR | POLLNVAL)) != 0) printer_.sink(Stream::standard_error).abandon();
    if (polled_[2].revents != 0) send_input();
  }

  void send_input() {
    HostLink& host = hosts_[options_.placements.front().host_index];
    auto input = input_.read();
    if (input && !host.channel.closed()) host.channel.send(*input);
  }

  int watched(Stream stream) {
    Sink& sink = printer_.sink(stream);
    return sink.broken() ? -1 : sink.descriptor();
  }
  short wanted(Stream stream) { return printer_.sink(stream).pending() > 0 ? POLLOUT : 0; }

  // What only horovodrun says is not for us.
  template <typename Order>
  void hear(HostLink&, const Order&) {}
  void hear(HostLink& host, const Ready& ready) {
    host.state = HostLink::State::ready;
    host.node_id = ready.node_id;
  }
  void hear(HostLink& host, const NotReady& report) {
    fail_to_start("the host " + host.name + " cannot take part: " + report.reason +
                  ". Its ranks would not be reached either: is there a firewall (HOROVOD_PORT_RANGE), or is another "
                  "network to be used (--network-interfaces)?");
  }
  void hear(HostLink& host, const Said& said) { say(host.is_here ? said.text : host.name + ": " + said.text); }
  void hear(HostLink&, const InputTaken& taken) { input_.hear(taken); }
  void hear(HostLink& host, const Answered&) { host.was_asked = false; }
  void hear(HostLink&, const Started& started) {
    ranks_[index(started.rank)].process = started.process;
    if (++started_ranks_ == ranks_.size()) tell_time("all ranks execute the command");
  }
  void hear(HostLink& host, const NotStarted& report) {
    FirstFailure failure;
    failure.kind = FirstFailure::Kind::not_started;
    failure.rank = report.rank;
    failure.text = report.error == 0 ? report.step : system_error(report.step, report.error).message;
    if (report.error == E2BIG)
      failure.text +=
          " (its arguments and its environment together are too long: unset what it does not need, or "
          "raise the limit, which is a quarter of ulimit -s)";
    failure.code = report.error == 0 ? report.code : report.error == ENOENT ? 127 : 126;
    fail(host, std::move(failure));
    ranks_[index(report.rank)].process = -1;  // its end is no news
  }
  void hear(HostLink& host, const Output& output) {
    host.owed_credit += static_cast<std::uint32_t>(output.bytes.size());
    if (!site_) return printer_.add(output);
    site_->add(output, print_, say_);
    // The launcher itself ends the others, in its own time; unless it does not.
    if (site_->failure() && !site_ends_by_) site_ends_by_ = Clock::now() + options_.grace + patience;
  }
  void hear(HostLink& host, const Exited& end) {
    RankState& rank = ranks_[index(end.rank)];
    bool was_started = rank.process >= 0;
    rank.ended = true;
    rank.wait_status = end.wait_status;
    if (wire_up_ != nullptr) wire_up_->rank_ended(end.rank, describe_end(end.wait_status));
    if (site_) {
      // What it said last may still be on its way.
      if (!ending_ && was_started) site_end_ = end;
    } else if (end.wait_status != 0 && was_started) {
      FirstFailure failure;
      failure.rank = end.rank;
      failure.process = rank.process;
      failure.end = end;
      fail(host, std::move(failure));
    }
    if (failures_.empty() && std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& r) { return r.ended; }))
      begin_end(SIGTERM);
  }
  // Nobody else would say so where nobody waits for that rank. Those that the user stopped by Ctrl-Z are no news.
  void hear(HostLink& host, const Stopped& stop) {
    if (site_ || ending_ || stop.signal == SIGTSTP) return;
    std::string process = std::to_string(ranks_[index(stop.rank)].process);
    say("rank " + std::to_string(stop.rank.value) + " on host " + host.name + " (process " + process +
        ") was stopped by signal " + std::to_string(stop.signal) + " (" + posix::name_of_signal(stop.signal) +
        "): the job waits for it to be continued (kill -CONT " + process + ")");
  }
  void hear(HostLink&, const Told& told) { end_by_signal(told.signal); }
  void hear(HostLink& host, const AllGone&) { be_rid_of(host); }

  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank.value); }

  void fail(const HostLink& host, FirstFailure failure) {
    if (ending_) return;  // it was told to end, or another one failed before
    failure.host = host.name;
    failures_.push_back(std::move(failure));
    if (gather_until_) return;
    // What failed on another host may have failed before, and this because of it.
    gather_until_ = Clock::now() + time_to_answer;
    for (HostLink& other : hosts_) {
      if (&other == &host || other.is_gone() || other.state != HostLink::State::ready) continue;
      other.was_asked = true;
      other.channel.send(Ask{});
      other.channel.flush();
    }
    settle_failure();
  }

  // A rank's code is told apart from that of its launcher.
  void judge_site() {
    site_->finish(print_, say_);
    if (!site_end_ || site_end_->wait_status == 0 || first_failure_) return;
    first_failure_ = site_->failure();
    if (first_failure_) {
      if (first_failure_->end.wait_status == 0) first_failure_->end.wait_status = site_end_->wait_status;
      if (first_failure_->rank.value >= 0) say_exit_code();
      return;
    }
    int status = site_end_->wait_status;
    std::string last = site_->last_line();
    say(std::string(options_.site->dialect->name) + " " + describe_end(status) +
        (last.empty() ? "" : "; the last that it said: " + last));
    site_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  void say_exit_code() {
    printer_.say("Process " + std::to_string(first_failure_->rank.value) + " exit with status code " +
                 std::to_string(exit_code_of(*first_failure_)) + ".");
  }

  void hurry_site() {
    if (!site_ends_by_ || Clock::now() < *site_ends_by_ || ending_) return;
    site_end_ = Exited{};
    site_end_->wait_status = SIGKILL;  // unless the rank's own end is known
    begin_end(SIGTERM);
  }

  void settle_failure() {
    if (!gather_until_ || ending_) return;
    bool answered = std::none_of(hosts_.begin(), hosts_.end(),
                                 [](const HostLink& h) { return h.was_asked && !h.is_gone() && !h.channel.closed(); });
    if (!answered && Clock::now() < *gather_until_) return;
    gather_until_.reset();
    first_failure_ = likely_cause(failures_);
    if (first_failure_->kind == FirstFailure::Kind::ended) say_exit_code();
    begin_end(SIGTERM);
  }

  void begin_end(int signal) {
    if (ending_) return;
    ending_ = true;
    give_up_at_ = Clock::now() + options_.grace + patience;
    order_end(signal, options_.grace);
  }

  void order_end(int signal, milliseconds grace) {
    for (HostLink& host : hosts_) {
      if (host.is_gone()) continue;
      if (host.is_here || host.channel.was_greeted()) {
        host.channel.send(End{signal, static_cast<std::int32_t>(grace.count())});
        host.channel.flush();
      } else if (host.process > 0) {
        ::kill(host.process, SIGTERM);  // ssh, and nobody there yet
      }
    }
  }

  static void be_rid_of(HostLink& host) { host.state = HostLink::State::gone; }

  // What becomes of the process that leads to the host, and of its stream.
  void look_after(HostLink& host) {
    if (host.is_here) {
      if (host.channel.closed() && !host.is_gone()) take_over(host);
      return;
    }
    for (const std::string& line : host.read_complaints()) say(host.name + ": " + line);
    if (host.process > 0 && ::waitpid(host.process, &host.wait_status, WNOHANG) == host.process) {
      host.process = 0;
      (void)host.channel.pump();
      (void)host.read_complaints();
    }
    if (host.is_gone() || (!host.channel.closed() && host.process > 0)) return;
    if (host.state == HostLink::State::ready)
      lose(host, host.process > 0 ? "its agent is gone" : "the connection to its agent ended");
    else if (host.process == 0)
      fail_to_start("the host " + host.name + " cannot be used: " + host.why_not(options_.network.remote_program));
    if (host.process == 0) be_rid_of(host);
  }

  void watch_lifelines() {
    if (lifelines_ == nullptr) return;
    for (const Lifelines::Loss& loss : lifelines_->serve()) {
      HostLink& host = hosts_[loss.host];
      if (host.is_gone()) continue;
      // Its last words: perhaps it ended as it should.
      std::vector<Message> last_words = host.channel.pump();
      for (const Message& message : last_words) std::visit([&](const auto& m) { hear(host, m); }, message);
      if (host.is_gone()) continue;
      if (loss.of_agent) {  // somebody there cleans up, and then what leads there ends
        lose(host, "its agent is gone");
        continue;
      }
      lose(host, "nothing is heard of its host any more");
      if (host.process > 0) ::kill(host.process, SIGKILL);
      host.channel.close();
      be_rid_of(host);
    }
  }

  // Its ranks are as good as killed.
  void lose(HostLink& host, const std::string& why) {
    FirstFailure failure;
    for (Rank rank : host.ranks) {
      RankState& state = ranks_[index(rank)];
      if (state.ended) continue;
      if (failure.text.empty()) {
        failure.kind = FirstFailure::Kind::host_lost;
        failure.rank = rank;
        failure.process = state.process;
        failure.text = why;
        failure.code = 128 + SIGKILL;
      }
      state.ended = true;
      state.wait_status = SIGKILL;
      if (wire_up_ != nullptr) wire_up_->rank_ended(rank, "was lost with its host " + host.name);
    }
    if (!failure.text.empty()) fail(host, std::move(failure));
  }

  void end_by_signal(int signal) {
    if (ended_by_signal_ != 0 || (ending_ && !all_ranks_succeeded())) {
      // Wanted a second time: no grace any more.
      if (own_ending_.begun()) own_ending_.begin(SIGKILL, milliseconds(0));
      order_end(SIGKILL, milliseconds(0));
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
          forward(SIGTSTP);
          ::kill(::getpid(), SIGSTOP);
          break;
        default: forward(event->signal);
      }
    }
  }

  void forward(int signal) {
    for (HostLink& host : hosts_) {
      if (host.is_gone()) continue;
      host.channel.send(Forward{signal});
      host.channel.flush();
    }
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
      fail(hosts_[options_.placements[index(request.rank)].host_index], std::move(failure));
    }
  }

  void give_credit() {
    printer_.sink(Stream::standard_output).flush();
    printer_.sink(Stream::standard_error).flush();
    if (printer_.pending() > output_window_bytes) return;
    for (HostLink& host : hosts_) {
      if (host.owed_credit == 0) continue;
      host.channel.send(Credit{host.owed_credit});
      host.channel.flush();
      host.owed_credit = 0;
    }
  }

  // A reader of our output that has gone (| head) ends the job, as a program that writes to such a pipe is ended.
  void watch_readers() {
    if (!printer_.sink(Stream::standard_output).broken() && !printer_.sink(Stream::standard_error).broken()) return;
    reader_lost_ = true;
    begin_end(SIGTERM);
  }

  // The agent of this machine has gone without being dismissed: somebody killed it. Its children are ours now.
  void take_over(const HostLink& host) {
    if (own_ending_.begun()) return;
    say("the agent (process " + std::to_string(host.process) + ") that started the ranks is gone: ending the job");
    agent_lost_ = true;
    begin_end(SIGTERM);
    own_ending_.begin(SIGTERM, options_.grace);
  }

  void end_what_was_taken_over() {
    own_ending_.step();
    for (int status = 0; pid_t child = ::waitpid(-1, &status, WNOHANG);) {
      if (child < 0) break;
      for (HostLink& host : hosts_)
        if (host.process == child && !host.is_here) {
          host.process = 0;
          host.wait_status = status;
        }
    }
    if (own_ending_.has_somebody()) return;
    for (HostLink& host : hosts_)
      if (host.is_here) be_rid_of(host);
  }

  bool is_all_gone() const {
    return std::all_of(hosts_.begin(), hosts_.end(), [](const HostLink& h) { return h.is_gone(); });
  }

  bool finished() {
    if (is_all_gone() && printer_.pending() == 0) return true;
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
    bool all_gone = is_all_gone();
    for (const HostLink& host : hosts_)
      if (!host.is_gone())
        say("processes of the job" + (host.is_here ? std::string() : " on host " + host.name) +
            " could not be ended within " + std::to_string((options_.grace + patience).count() / 1000) +
            " s (they hang in the kernel?); the agent" +
            (host.is_here ? " (process " + std::to_string(host.process) + ")" : " there") + " goes on trying");
    if (site_) judge_site();
    printer_.finish();
    wire_up_.reset();
    if (all_gone) folder_.remove();
    if (first_failure_) printer_.say(describe(*first_failure_, last_errors()));
    flush(ended_by_signal_ != 0 ? Deadline::after(patience) : Deadline::never());
    dismiss_all();
    return verdict(all_gone);
  }

  std::vector<std::string> last_errors() const {
    if (first_failure_->rank.value < 0 || first_failure_->rank.value >= options_.printer.size) return {};
    return printer_.last_errors(first_failure_->rank);
  }

  // Their processes go last, so that there is nothing left when we have ended.
  void dismiss_all() {
    for (HostLink& host : hosts_) {
      if (!host.is_gone() || host.process == 0 || host.channel.closed()) continue;
      host.channel.send(Dismiss{});
      host.channel.flush();
    }
    Deadline limit = Deadline::after(patience);
    for (HostLink& host : hosts_) {
      if (!host.is_gone() || host.process == 0) continue;
      if (host.is_here && !agent_lost_) ::waitpid(host.process, nullptr, 0);
      if (host.is_here) continue;
      while (::waitpid(host.process, &host.wait_status, WNOHANG) == 0) {
        if (limit.passed()) ::kill(host.process, SIGKILL);
        ::poll(nullptr, 0, 2);
      }
    }
  }

  JobEnd verdict(bool all_gone) const {
    if (first_failure_) return {exit_code_of(*first_failure_), 0};
    if (failed_to_start_) return {1, 0};
    if (site_code_ != 0) return {site_code_, 0};
    if (site_ && ended_by_signal_ != 0 && !all_ranks_succeeded()) return {128 + ended_by_signal_, ended_by_signal_};
    if (ended_by_signal_ != 0) {
      // Ranks that caught the signal and ended in their own way (a checkpoint, a code that asks to be queued again)
      // decide.
      if (!all_ranks_exited()) return {128 + ended_by_signal_, ended_by_signal_};
      auto failed = std::find_if(ranks_.begin(), ranks_.end(), [](const RankState& r) { return r.wait_status != 0; });
      return {failed == ranks_.end() ? 0 : WEXITSTATUS(failed->wait_status), 0};
    }
    if (agent_lost_) return {128 + SIGKILL, 0};
    if (reader_lost_ && !all_ranks_succeeded()) return {128 + SIGPIPE, SIGPIPE};
    return {all_gone ? 0 : 1, 0};
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

  static std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    return text;
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
  std::vector<HostLink> hosts_;
  std::vector<pollfd> polled_;
  InputRelay input_;
  std::optional<SiteOutput> site_;  // if a launcher of the site starts the ranks
  std::function<void(const Output&)> print_ = [this](const Output& output) { printer_.add(output); };
  std::function<void(std::string_view)> say_ = [this](std::string_view line) { printer_.say(line); };
  std::optional<Clock::time_point> site_ends_by_;
  std::optional<Exited> site_end_;  // if it ended before anybody wanted that
  int site_code_ = 0;
  std::unique_ptr<Lifelines> lifelines_;  // none while all ranks are on this machine
  std::unique_ptr<WireUp> wire_up_;
  Deadline start_by_ = Deadline::never();
  bool is_launched_ = false;
  std::vector<RankState> ranks_;
  std::size_t started_ranks_ = 0;
  Clock::time_point started_at_;

  bool ending_ = false;
  std::optional<FirstFailure> first_failure_;
  int ended_by_signal_ = 0;
  bool failed_to_start_ = false, agent_lost_ = false, reader_lost_ = false;
  std::vector<FirstFailure> failures_;
  std::optional<Clock::time_point> gather_until_;
  Ending own_ending_;  // only after the agent was lost
  std::optional<Clock::time_point> give_up_at_;
};

}  // namespace

JobEnd run_job(const JobOptions& options, const Environment& environment) {
  return Job(options, environment).run();
}

}  // namespace hvd::launcher
