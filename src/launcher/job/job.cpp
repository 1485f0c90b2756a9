// The life of a job, as horovodrun sees it, by the job's state:
//  1. gathering. The agent of this machine is forked while there is a single thread and nothing that the agent could
//     inherit. The agents of other hosts are started by one command each (host_links.hpp). The way in which the ranks
//     meet is decided, and every agent prepares itself. When all agents are ready, one StartRank per rank goes to its
//     agent (start_orders.hpp).
//  2. running. Output is printed and signals are forwarded until all ranks have ended, or one has failed, or somebody
//     wants the end.
//  3. inquiring. A rank has failed, and the agents are asked which failure was the first (failure_inquiry.hpp).
//  4. ending. End goes to the agents, which end every process that is left (also after success, because ranks may leave
//     processes in the background). Ends of ranks after they were told to end are no failures. If the agent of this
//     machine is killed, its children become ours, and we end them here (job_ending.hpp). On another host a process
//     above the agent does that (remote_agent.hpp). A host from which nothing is heard any more counts as gone, and its
//     agent treats us in the same way.
// Then close() prints the unfinished lines and the verdict (verdict.hpp), dismisses the agents and removes the folder.
#include "launcher/job/job.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/comma_list.hpp"
#include "launcher/agent/rank_environment.hpp"
#include "launcher/console/console.hpp"
#include "launcher/console/input_relay.hpp"
#include "launcher/job/failure_inquiry.hpp"
#include "launcher/job/host_links.hpp"
#include "launcher/job/host_progress.hpp"
#include "launcher/job/host_watch.hpp"
#include "launcher/job/job_ending.hpp"
#include "launcher/job/own_process.hpp"
#include "launcher/job/session_folder.hpp"
#include "launcher/job/site_run.hpp"
#include "launcher/job/start_orders.hpp"
#include "launcher/job/wire_up.hpp"
#include "native/posix/host_identity.hpp"
#include "native/posix/process.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

class Job {
 public:
  Job(const JobOptions& options, const Environment& environment)
      : options_(options),
        environment_(without_traces_of_launchers(environment)),
        folder_(environment, notices_),
        console_(options.printer, options.verbose),
        ranks_(options.placements.size()),
        ending_(hosts_, options.grace),
        inquiry_(hosts_) {
    course_.is_under_site_launcher = options.site.has_value();
    if (options.site) site_.emplace(*options.site->dialect, options.printer.size, options.grace, console_);
  }

  JobEnd run() {
    if (auto started = start(); !started) fail_to_start(started.error().message);
    while (hosts_.size() > 0 && !is_finished()) {
      wait();
      hosts_.receive(hear_);
      read_signals();
      for (const HostNews& news : watch_.look_at_links(options_.network.remote_program)) hear(news);
      for (const HostNews& news : watch_.look_at_lifelines(hear_)) hear(news);
      start_ranks_when_ready();
      read_requests();
      name_cause();
      hurry_site();
      console_.flush();
      if (console_.has_room()) hosts_.give_credit();
      watch_reader();
      ending_.step();
    }
    return close();
  }

 private:
  // The functions that start the job, from here to start_ranks().
  Status start() {
    settings_ = {folder_.path(), {posix::SignalState::of_this_process(), posix::descriptor_limit()}, options_.grace};
    for (const std::string& notice : notices_) console_.say(notice);
    auto signals = prepare_own_process(options_);
    if (!signals) return signals.error();
    signals_.emplace(std::move(*signals));
    if (!options_.printer.folder.empty()) HVD_RETURN_IF_ERROR(console_.printer().open_files());
    HVD_RETURN_IF_ERROR(reach_hosts());
    HVD_RETURN_IF_ERROR(wire_up());
    for (std::size_t at = 0; at < hosts_.size(); ++at)
      hosts_[at].tell(prepare_order(options_, hosts_[at], at, watch_.lifelines()));
    HVD_RETURN_IF_ERROR(reach_more());
    // A job on this machine alone does not wait until its agent is ready: that agent cannot fail to become so.
    return watch_.lifelines() == nullptr ? start_ranks() : Status();
  }

  Status reach_hosts() {
    for (const HostPlan& plan : options_.hosts)
      if (!plan.reach.empty()) console_.say_if_verbose("reaching for " + plan.name + ": " + joined(plan.reach, " "));
    HVD_RETURN_IF_ERROR(hosts_.reach(options_, settings_));
    console_.say_time("agents forked");
    if (host_of_first_rank().is_here && !input_.is_ours()) return {};
    // A read from a terminal in the background must fail. With the default action of SIGTTIN it would stop us.
    ::signal(SIGTTIN, SIG_IGN);
    input_.open();
    return {};
  }

  Status wire_up() {
    if (site_) return {};  // the site's launcher lets its ranks meet
    bool is_on_several = options_.is_on_several_machines();
    if (is_on_several) {
      HVD_RETURN_IF_ERROR(watch_.open_lifelines(options_.network));
      start_by_ = Deadline::after(options_.network.start_timeout);
    }
    std::vector<std::string> notices;
    auto wired = WireUp::start(
        {"horovodrun-" + folder_.path().substr(folder_.path().rfind('-') + 1), static_cast<int>(ranks_.size()),
         posix::host_name(), folder_.make(), is_on_several, options_.network.interfaces, options_.network.ports},
        environment_, notices);
    if (!wired) return wired.error();
    wire_up_ = std::move(*wired);
    for (const std::string& notice : notices) console_.say(notice);
    console_.say_time(wire_up_->has_pmix() ? "PMIx server and own store ready" : "own store ready");
    return {};
  }

  Status reach_more() {
    return hosts_.reach_more(
        [this](std::size_t at) { hosts_[at].tell(prepare_order(options_, hosts_[at], at, watch_.lifelines())); });
  }

  // Starts the ranks once all hosts are ready. If a host is not ready in time, the job ends.
  void start_ranks_when_ready() {
    if (state_ != State::gathering || watch_.lifelines() == nullptr) return;
    if (Status reached = reach_more(); !reached) return fail_to_start(reached.error().message);
    if (auto line = progress_.look(hosts_, Clock::now())) console_.say(*line);
    if (hosts_.are_all_ready()) {
      console_.say_time("all hosts ready");
      Status possible = hosts_.check_nodes();
      if (possible) possible = start_ranks();
      if (!possible) fail_to_start(possible.error().message);
    } else if (start_by_.passed()) {
      constexpr std::size_t most_named = 8;
      std::size_t missing = 0;
      std::string text;
      for (const HostLink& host : hosts_)
        if (!host.is_ready() && ++missing <= most_named)
          text += (text.empty() ? "" : "; ") + host.name + ": " + host.why_not(options_.network.remote_program);
      if (missing > most_named) text += "; and " + std::to_string(missing - most_named) + " more hosts";
      fail_to_start("not all hosts were ready within " + std::to_string(options_.network.start_timeout.count() / 1000) +
                    " s (--start-timeout sets another limit): " + text);
    }
  }

  Status start_ranks() {
    state_ = State::running;
    start_by_ = Deadline::never();
    if (site_) return start_site_launcher();
    const Environment abroad = exportable(environment_);
    for (const Placement& placement : options_.placements) {
      HostLink& host = hosts_[placement.host_index];
      auto order = start_order(options_, placement, host.is_here, host.is_here ? environment_ : abroad, *wire_up_);
      if (!order) return order.error();
      tell_to_start(host, std::move(*order));
    }
    console_.say_time("launch orders sent");
    return {};
  }

  Status start_site_launcher() {
    auto order = order_for_site(*options_.site, environment_, options_.variables, [this] { return folder_.make(); });
    if (!order) return order.error();
    order->folder = working_folder();
    tell_to_start(host_of_first_rank(), *order);
    console_.say_if_verbose("starting " + joined(order->command, " "));
    return {};
  }

  void tell_to_start(HostLink& host, StartRank order) {
    if (input_.is_ours() && order.input == InputFrom::agent) order.input = InputFrom::horovodrun;
    host.tell(order);
  }

  void fail_to_start(const std::string& why) {
    if (state_ != State::ending) console_.say(why);
    course_.failed_to_start = true;
    hosts_.drop_unreached();
    end(SIGTERM);
  }

  void wait() {
    auto [output, errors] = console_.wanted();
    polled_.assign({output,
                    errors,
                    input_.wanted(),
                    {signals_ ? signals_->descriptor() : -1, POLLIN, 0},
                    {wire_up_ != nullptr ? wire_up_->store_descriptor() : -1, POLLIN, 0},
                    {wire_up_ != nullptr ? wire_up_->abort_descriptor() : -1, POLLIN, 0},
                    {watch_.descriptor(), POLLIN, 0}});
    hosts_.add_to(polled_);
    milliseconds span = std::min({ending_.left(), start_by_.left(), inquiry_.left(), input_.left()});
    if (site_) span = std::min(span, site_->left());
    bool may_be_long = watch_.lifelines() != nullptr && state_ == State::gathering;
    // Wakes up regularly, to start the commands to the next hosts and to tell how many hosts have answered.
    if (may_be_long) span = std::min(span, milliseconds(500));
    ::poll(polled_.data(), polled_.size(), static_cast<int>(span.count()));
    console_.look(polled_[0], polled_[1]);
    if (polled_[2].revents != 0 || input_.is_end_due()) send_input();
  }

  void send_input() {
    auto input = input_.read();
    if (input && !host_of_first_rank().channel.closed()) host_of_first_rank().channel.send(*input);
  }

  // One hear() for each kind of report of the agents.
  void hear(HostLink&, const Ready&) {}  // HostLink::note() has seen this and the next two
  void hear(HostLink&, const Answered&) {}
  void hear(HostLink&, const AllEnded&) {}
  void hear(HostLink& host, const NotReady& report) {
    fail_to_start("the host " + host.name + " cannot take part: " + report.reason +
                  ". Its ranks would not be reached either: is there a firewall (HOROVOD_PORT_RANGE), or is another "
                  "network to be used (--network-interfaces)?");
  }
  void hear(HostLink& host, const Said& said) { console_.say(host.is_here ? said.text : host.name + ": " + said.text); }
  void hear(HostLink&, const InputTaken& taken) { input_.hear(taken, InputRelay::By::agent); }
  void hear(HostLink&, const Started& started) {
    ranks_.start(started.rank, started.process);
    if (ranks_.have_all_started()) console_.say_time("all ranks execute the command");
  }
  void hear(HostLink& host, const NotStarted& report) {
    ranks_.fail_to_start(report.rank);
    fail(host, failure_to_start(report));
  }
  void hear(HostLink&, const Output& output) {
    if (!site_) return console_.printer().add(output);
    site_->add(output);
    input_.hear(site_->input_taken(), InputRelay::By::keeper);
  }
  void hear(HostLink& host, const Exited& report) {
    bool is_news = ranks_.could_start(report.rank);
    ranks_.end(report.rank, report.wait_status);
    if (wire_up_ != nullptr) wire_up_->rank_ended(report.rank, describe_end(report.wait_status));
    if (site_) {
      // The launcher has ended, but its last output may still be on its way.
      if (state_ != State::ending && is_news) site_->end(report);
    } else if (report.wait_status != 0 && is_news && !wants_another_run(report.wait_status)) {
      fail(host, failure_by_end(report, ranks_.process_of(report.rank)));
    }
    if (state_ != State::inquiring && ranks_.have_all_ended()) end(SIGTERM);
  }
  // If no other rank waits for the stopped one, nothing else tells the user about it. The user knows about a rank that
  // was stopped by Ctrl-Z.
  void hear(HostLink& host, const Stopped& stop) {
    if (site_ || state_ == State::ending || stop.signal == SIGTSTP) return;
    std::string process = std::to_string(stop.process);
    console_.say("rank " + std::to_string(stop.rank.value) + " on host " + host.name + " (process " + process +
                 ") was stopped by signal " + std::to_string(stop.signal) + " (" + posix::name_of_signal(stop.signal) +
                 "): the job waits for it to be continued (kill -CONT " + process + ")");
  }
  void hear(HostLink&, const Told& told) { end_by_signal(told.signal); }

  // Failures and their consequences.
  void fail(const HostLink& host, FirstFailure failure) {
    if (state_ == State::ending) return;  // the job was told to end, or another rank failed before
    state_ = State::inquiring;
    inquiry_.add(host, std::move(failure));
    name_cause();
  }

  void name_cause() {
    if (state_ != State::inquiring) return;
    course_.first_failure = inquiry_.conclusion();
    if (!course_.first_failure) return;
    if (course_.first_failure->kind == FirstFailure::Kind::ended)
      console_.printer().say(exit_code_line(*course_.first_failure));
    end(SIGTERM);
  }

  // Only the first wish for the end counts.
  void end(int signal) {
    state_ = State::ending;
    ending_.begin(signal);
  }

  void read_requests() {
    if (wire_up_ == nullptr) return;
    for (AbortRequest& request : wire_up_->serve()) {
      if (!ranks_.has(request.rank)) continue;
      const HostLink& host = hosts_[options_.placements[static_cast<std::size_t>(request.rank.value)].host_index];
      fail(host,
           failure_by_wish(request.rank, ranks_.process_of(request.rank), request.status, std::move(request.reason)));
    }
  }

  void hurry_site() {
    if (!site_ || !site_->is_overdue() || state_ == State::ending) return;
    site_->give_up();
    end(SIGTERM);
  }

  void hear(const HostNews& news) {
    HostLink& host = *news.host;
    switch (news.kind) {
      case HostNews::Kind::complaint: return console_.say(host.name + ": " + news.text);
      case HostNews::Kind::unusable: return fail_to_start("the host " + host.name + " cannot be used: " + news.text);
      case HostNews::Kind::lost: return lose(host, news.text);
      case HostNews::Kind::taken_over:
        console_.say("the agent (process " + std::to_string(host.process) +
                     ") that started the ranks is gone: ending the job");
        course_.has_lost_agent = true;
        state_ = State::ending;
        ending_.take_over(host);
    }
  }

  // Counts the ranks of the host as killed.
  void lose(const HostLink& host, const std::string& why) {
    std::optional<Rank> first;
    for (Rank rank : host.ranks) {
      if (ranks_.has_ended(rank)) continue;
      if (!first) first = rank;
      ranks_.end(rank, SIGKILL);
      if (wire_up_ != nullptr) wire_up_->rank_ended(rank, "was lost with its host " + host.name);
    }
    if (first) fail(host, failure_by_loss(*first, ranks_.process_of(*first), why));
  }

  // Signals and other wishes of the user.
  void read_signals() {
    while (auto event = signals_ ? signals_->next() : std::nullopt) {
      switch (event->signal) {
        case SIGINT:
        case SIGTERM:
        case SIGHUP: end_by_signal(event->signal); break;
        case SIGCHLD: break;  // the channel shows the agent's end; adopted children are reaped after that
        case SIGTSTP:
          hosts_.forward(SIGTSTP);
          ::kill(::getpid(), SIGSTOP);
          break;
        default: hosts_.forward(event->signal);
      }
    }
  }

  void end_by_signal(int signal) {
    bool wanted_before = course_.ended_by_signal != 0 || (state_ == State::ending && !ranks_.have_all_succeeded());
    if (wanted_before) return ending_.hurry();
    course_.ended_by_signal = signal;
    console_.say(posix::name_of_signal(signal) + " received: ending the job");
    end(signal);
  }

  // If the reader of our output has gone (| head), the job ends, as a program ends that writes to such a pipe.
  void watch_reader() {
    if (!console_.has_lost_reader()) return;
    course_.has_lost_reader = true;
    end(SIGTERM);
  }

  bool is_finished() {
    if (hosts_.are_all_gone() && !console_.has_unsent()) return true;
    // Waits for a slow reader of our output, unless the user wants the end.
    return ending_.has_given_up() && (!console_.has_unsent() || course_.ended_by_signal != 0);
  }

  JobEnd close() {
    course_.is_all_gone = hosts_.are_all_gone();
    for (const HostLink& host : hosts_)
      if (!host.is_gone()) console_.say(host.why_not_gone(options_.grace + JobEnding::patience));
    if (site_) judge_site();
    console_.printer().finish();
    wire_up_.reset();
    if (course_.is_all_gone) folder_.remove();
    if (course_.first_failure) console_.printer().say(describe(*course_.first_failure, last_errors()));
    console_.flush_all(course_.ended_by_signal != 0 ? Deadline::after(JobEnding::patience) : Deadline::never());
    hosts_.dismiss(Deadline::after(JobEnding::patience));
    return verdict_on(course_, ranks_);
  }

  void judge_site() {
    site_->finish();
    course_.wants_another_run = site_->want_another_run();
    if (course_.first_failure) return;
    SiteRun::Outcome outcome = site_->outcome();
    course_.first_failure = std::move(outcome.failure);
    course_.site_exit_code = outcome.exit_code;
  }

  std::vector<std::string> last_errors() {
    Rank rank = course_.first_failure->rank;
    if (rank.value < 0 || rank.value >= options_.printer.size) return {};
    return console_.printer().last_errors(rank);
  }

  HostLink& host_of_first_rank() { return hosts_[options_.placements.front().host_index]; }

  const JobOptions& options_;
  Environment environment_;
  std::vector<std::string> notices_;  // messages from before there was a console
  SessionFolder folder_;
  Console console_;
  std::optional<posix::SignalReader> signals_;
  AgentSettings settings_;
  HostLinks hosts_;
  HostProgress progress_{Clock::now()};
  std::vector<pollfd> polled_;
  InputRelay input_{options_.site && options_.site->packs_input};
  HostWatch watch_{hosts_};
  std::unique_ptr<WireUp> wire_up_;
  std::optional<SiteRun> site_;  // set if a launcher of the site starts the ranks
  Deadline start_by_ = Deadline::never();
  enum class State { gathering, running, inquiring, ending };
  State state_ = State::gathering;
  RankTable ranks_;
  JobEnding ending_;
  FailureInquiry inquiry_;
  JobCourse course_;
  const HostLinks::Hear hear_ = [this](HostLink& host, const Report& report) {
    std::visit([&](const auto& each) { hear(host, each); }, report);
    ending_.hear();
  };
};

}  // namespace

JobEnd run_job(const JobOptions& options, const Environment& environment) {
  return Job(options, environment).run();
}

}  // namespace hvd::launcher
