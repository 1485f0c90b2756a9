// The life of a job, as horovodrun sees it, by the job's state:
//  1. gathering. The agent of this machine is forked while there is a single thread and nothing that the agent could
//     inherit. The agents of other hosts are started by one command each (host_links.hpp). The way in which the ranks
//     meet is decided, and every agent prepares itself. When all agents are ready, one StartRank per rank goes to its
//     agent (job_start.hpp).
//  2. running. In a job whose ranks come and go, elastic_job.hpp starts processes and decides what their ends mean.
//     Output is printed and signals are forwarded until all ranks have ended, or one has failed, or somebody
//     wants the end.
//  3. inquiring. A rank has failed, and the agents are asked which failure was the first (failure_inquiry.hpp).
//  4. ending. End goes to the agents, which end every process that is left (also after success, because ranks may leave
//     processes in the background). Ends of ranks after they were told to end are no failures. If the agent of this
//     machine is killed, its children become ours, and we end them here (job_ending.hpp). On another host a process
//     above the agent does that (remote_agent.hpp). A host from which nothing comes any more counts as gone, and its
//     agent treats us in the same way.
// Then close() prints the unfinished lines and the verdict (verdict.hpp), dismisses the agents and removes the folder.
#include "launcher/job/job.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent/rank_environment.hpp"
#include "launcher/job/elastic_job.hpp"
#include "launcher/job/failure_inquiry.hpp"
#include "launcher/job/job_ending.hpp"
#include "launcher/job/job_start.hpp"
#include "launcher/job/own_process.hpp"
#include "launcher/job/site_run.hpp"
#include "native/posix/processes/process.hpp"

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
        ranks_(options.elastic ? 0 : options.placements.size()),
        ending_(hosts_, options.grace),
        inquiry_(hosts_) {
    course_.is_under_site_launcher = options.site.has_value();
    if (options.elastic) elastic_.emplace(ElasticJob::Parts{options, environment_, console_, hosts_, ranks_});
    if (options.site) site_.emplace(*options.site->dialect, options.printer.size, options.grace, console_);
  }

  JobEnd run() {
    if (auto started = start(); !started) fail_to_start(started.error().message);
    while (hosts_.size() > 0 && !is_finished()) {
      wait();
      hosts_.receive(on_report_);
      read_signals();
      for (const HostNews& news : watch_.look_at_links(options_.network.remote_program)) handle(news);
      for (const HostNews& news : watch_.look_at_lifelines(on_report_)) handle(news);
      start_ranks_when_ready();
      read_requests();
      step_elastic();
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
  Status start() {
    AgentSettings settings{
        folder_.path(), {posix::SignalState::of_this_process(), posix::descriptor_limit()}, options_.grace};
    for (const std::string& notice : notices_) console_.say(notice);
    auto signals = prepare_own_process(options_);
    if (!signals) return signals.error();
    signals_.emplace(std::move(*signals));
    if (!options_.printer.folder.empty()) HVD_RETURN_IF_ERROR(console_.printer().open_files());
    HVD_RETURN_IF_ERROR(start_.begin(std::move(settings)));
    if (start_.has_started_ranks()) begin_running();
    return {};
  }

  void begin_running() {
    state_ = State::running;
    if (elastic_) elastic_->begin(*wire_up());
  }

  void start_ranks_when_ready() {
    if (state_ != State::gathering) return;
    if (Status started = start_.step(); !started) return fail_to_start(started.error().message);
    if (start_.has_started_ranks()) begin_running();
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
                    {wire_up() != nullptr ? wire_up()->store_descriptor() : -1, POLLIN, 0},
                    {wire_up() != nullptr ? wire_up()->abort_descriptor() : -1, POLLIN, 0},
                    {watch_.descriptor(), POLLIN, 0}});
    hosts_.add_to(polled_);
    if (elastic_) elastic_->add_to(polled_);
    milliseconds span = std::min({ending_.left(), inquiry_.left(), input_.left()});
    if (state_ == State::gathering) span = std::min(span, start_.left());
    if (site_) span = std::min(span, site_->left());
    if (elastic_) span = std::min(span, elastic_->left());
    ::poll(polled_.data(), polled_.size(), static_cast<int>(span.count()));
    console_.look(polled_[0], polled_[1]);
    if (polled_[2].revents != 0 || input_.is_end_due()) send_input();
  }

  void send_input() {
    auto input = input_.read();
    if (input && !host_of_first_rank().channel.closed()) host_of_first_rank().channel.send(*input);
  }

  // One handle() for each kind of report of the agents. HostLink::note() handles the first three.
  void handle(HostLink& host, const Ready& report) {
    if (elastic_) elastic_->handle(host, report);
  }
  void handle(HostLink&, const Answered&) {}
  void handle(HostLink&, const AllEnded&) {}
  void handle(HostLink& host, const NotReady& report) {
    if (elastic_) return elastic_->lose(host, report.reason);
    fail_to_start("the host " + host.name + " cannot take part: " + report.reason +
                  ". Its ranks would not be reached either: is there a firewall (HOROVOD_PORT_RANGE), or is another "
                  "network to be used (--network-interfaces)?");
  }
  void handle(HostLink& host, const Said& said) {
    console_.say(host.is_here ? said.text : host.name + ": " + said.text);
  }
  void handle(HostLink&, const InputTaken& taken) { input_.note_taken(taken, InputRelay::By::agent); }
  void handle(HostLink&, const Started& started) {
    ranks_.start(started.rank, started.process);
    if (elastic_) return;
    if (ranks_.have_all_started()) console_.say_time("all ranks execute the command");
  }
  void handle(HostLink& host, const NotStarted& report) {
    ranks_.fail_to_start(report.rank);
    if (elastic_) return elastic_->handle(report);
    fail(host, failure_to_start(report));
  }
  void handle(HostLink&, const Output& output) {
    if (!site_) return console_.printer().add(output);
    site_->add(output);
    input_.note_taken(site_->input_taken(), InputRelay::By::keeper);
  }
  void handle(HostLink& host, const Exited& report) {
    bool is_news = ranks_.could_start(report.rank);
    ranks_.end(report.rank, report.wait_status);
    if (elastic_) return is_news ? elastic_->handle(report) : void();
    if (wire_up() != nullptr) wire_up()->rank_ended(report.rank, describe_end(report.wait_status));
    if (report.wait_status == 0 && state_ == State::running && left_first_.empty())
      left_first_ = "rank " + std::to_string(report.rank.value) + " on host " + host.name;
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
  void handle(HostLink& host, const Stopped& stop) {
    if (site_ || state_ == State::ending || stop.signal == SIGTSTP) return;
    std::string process = std::to_string(stop.process);
    console_.say((elastic_ ? elastic_->name_of(stop.rank) : "rank " + std::to_string(stop.rank.value)) + " on host " +
                 host.name + " (process " + process + ") was stopped by signal " + std::to_string(stop.signal) + " (" +
                 posix::name_of_signal(stop.signal) + "): the job waits for it to be continued (kill -CONT " + process +
                 ")");
  }
  void handle(HostLink& host, const Told& told) {
    if (!elastic_ || host.is_here) return end_by_signal(told.signal);
    // One host of several, which come and go.
    if (state_ == State::running)
      elastic_->lose(host, "its agent was told to end by " + posix::name_of_signal(told.signal));
  }

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
    course_.first_failure->left_before = left_first_;
    if (course_.first_failure->kind == FirstFailure::Kind::ended)
      console_.printer().say(exit_code_line(*course_.first_failure));
    end(SIGTERM);
  }

  // Only the first request for the end counts.
  void end(int signal) {
    state_ = State::ending;
    ending_.begin(signal);
  }

  void read_requests() {
    if (wire_up() == nullptr) return;
    for (AbortRequest& request : wire_up()->serve()) {
      // In an elastic job the request is of one process, whose end the membership judges.
      if (elastic_ || !ranks_.has(request.rank)) continue;
      const HostLink& host = hosts_[options_.placements[static_cast<std::size_t>(request.rank.value)].host_index];
      fail(host, failure_by_request(request.rank, ranks_.process_of(request.rank), request.status,
                                    std::move(request.reason)));
    }
  }

  void step_elastic() {
    if (!elastic_) return;
    if (state_ == State::ending) elastic_->refuse_asks();
    if (state_ != State::running) return;
    if (Status reached = start_.reach_more(); !reached) return fail_to_start(reached.error().message);
    auto decided = elastic_->step();
    if (!decided) return;
    if (!decided->text.empty()) console_.say(decided->text);
    course_.has_failed = decided->is_failure;
    course_.first_failure = std::move(decided->failure);
    process_of_failure_ = Rank{decided->process};
    if (course_.first_failure && course_.first_failure->kind == FirstFailure::Kind::ended)
      console_.printer().say(exit_code_line(*course_.first_failure));
    end(SIGTERM);
  }

  void hurry_site() {
    if (!site_ || !site_->is_overdue() || state_ == State::ending) return;
    site_->give_up();
    end(SIGTERM);
  }

  void handle(const HostNews& news) {
    HostLink& host = *news.host;
    switch (news.kind) {
      case HostNews::Kind::complaint: return console_.say(host.name + ": " + news.text);
      case HostNews::Kind::unusable:
        if (elastic_) return elastic_->lose(host, news.text);
        return fail_to_start("the host " + host.name + " cannot be used: " + news.text);
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
  void lose(HostLink& host, const std::string& why) {
    if (elastic_) return elastic_->lose(host, why);
    std::optional<Rank> first;
    for (Rank rank : host.ranks) {
      if (ranks_.has_ended(rank)) continue;
      if (!first) first = rank;
      ranks_.end(rank, SIGKILL);
      if (wire_up() != nullptr) wire_up()->rank_ended(rank, "was lost with its host " + host.name);
    }
    if (first) fail(host, failure_by_loss(*first, ranks_.process_of(*first), why));
  }

  // Signals, and how the user ends the job.
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
    start_.close();
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
    if (elastic_) return console_.printer().last_errors(process_of_failure_);
    if (rank.value < 0 || rank.value >= options_.printer.size) return {};
    return console_.printer().last_errors(rank);
  }

  WireUp* wire_up() const { return start_.wire_up(); }
  HostLink& host_of_first_rank() { return hosts_[options_.placements.front().host_index]; }

  const JobOptions& options_;
  Environment environment_;
  std::vector<std::string> notices_;  // messages to print as soon as there is a console
  SessionFolder folder_;
  Console console_;
  std::optional<posix::SignalReader> signals_;
  HostLinks hosts_;
  std::vector<pollfd> polled_;
  InputRelay input_{options_.site && options_.site->packs_input};
  HostWatch watch_{hosts_};
  JobStart start_{{options_, environment_, folder_, console_, hosts_, watch_, input_}};
  std::optional<SiteRun> site_;  // set if a launcher of the site starts the ranks
  enum class State { gathering, running, inquiring, ending };
  State state_ = State::gathering;
  RankTable ranks_;
  std::optional<ElasticJob> elastic_;  // set if the ranks come and go; a Rank of the agents is a process's number then
  Rank process_of_failure_{-1};        // of an elastic job
  std::string left_first_;             // the first rank that ended with exit code 0 while no failure was known
  JobEnding ending_;
  FailureInquiry inquiry_;
  JobCourse course_;
  const HostLinks::OnReport on_report_ = [this](HostLink& host, const Report& report) {
    std::visit([&](const auto& each) { handle(host, each); }, report);
    ending_.note_report();
  };
};

}  // namespace

JobEnd run_job(const JobOptions& options, const Environment& environment) {
  return Job(options, environment).run();
}

}  // namespace hvd::launcher
