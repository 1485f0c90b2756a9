#include "launcher/job/elastic_job.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <random>
#include <utility>

#include "launcher/agent/rank_environment.hpp"
#include "launcher/job/start_orders.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds time_to_end_by_signal(1000), time_to_look_again(200), time_to_ask_again(60000);

Membership::Settings completed(Membership::Settings settings) {
  if (!settings.draw)
    settings.draw = [generator = std::mt19937_64(std::random_device()())]() mutable {
      return std::uniform_real_distribution<double>(0, 1)(generator);
    };
  return settings;
}

std::string title_of(const Membership::Start& step) {
  return "slot " + std::to_string(step.slot) + " of host " + step.host;
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

ElasticJob::ElasticJob(const Parts& parts)
    : parts_(parts),
      discovery_(parts.options.elastic->script ? Discovery(*parts.options.elastic->script)
                                               : Discovery(parts.options.elastic->hosts)),
      membership_(completed(parts.options.elastic->membership)) {}

void ElasticJob::begin(WireUp& wire_up) {
  wire_up_ = &wire_up;
  ask_again_at_ = Clock::now();
  const ElasticOptions& elastic = *parts_.options.elastic;
  const Clock::time_point ready_by = Clock::now() + parts_.options.network.start_timeout;
  for (std::size_t at = 0; at < elastic.hosts.size(); ++at)
    places_[elastic.hosts[at].host] = {at, 0, elastic.hosts[at].slots, ready_by};
}

void ElasticJob::look_for_hosts() {
  auto found = discovery_.look();
  if (!found) return;
  if (!*found) return membership_.discovery_failed(found->error().message);
  for (const HostSlots& host : **found) {
    auto known = places_.find(host.host);
    if (known == places_.end()) take_place(host);
    else known->second.slots = host.slots;
  }
  membership_.hosts_found(**found);
}

void ElasticJob::add_to(std::vector<pollfd>& polled) const {
  if (!is_going_on()) return;
  for (const pollfd& each : discovery_.wanted()) polled.push_back(each);
}

// Makes a way to a host that was discovered, or that is used again after it was lost.
void ElasticJob::take_place(const HostSlots& host) {
  HostPlan plan = parts_.options.elastic->plan_of_host(host.host);
  Place& place = places_[host.host];
  place.slots = host.slots;
  place.ready_by = Clock::now() + parts_.options.network.start_timeout;
  if (plan.reach.empty()) {
    place.link = 0;  // the agent of this machine
    place.first_slot = std::exchange(slots_here_, slots_here_ + host.slots);
  } else {
    place.link = parts_.hosts.add(plan, host.slots);
  }
}

ElasticJob::Place& ElasticJob::place_of(const std::string& host) {
  Place& place = places_[host];
  if (parts_.hosts[place.link].is_gone() && parts_.options.elastic->plan_of_host) take_place({host, place.slots});
  return place;
}

void ElasticJob::send_pending() {
  std::vector<Rank> lost;
  std::erase_if(pending_, [&](const PendingStart& each) {
    HostLink& link = parts_.hosts[each.link];
    if (link.is_gone()) {
      lost.push_back(each.order.rank);
    } else if (link.is_here || link.is_ready()) {
      link.send(each.order);
    } else {
      return false;
    }
    return true;
  });
  for (Rank number : lost) {
    if (parts_.processes.has_ended(number)) continue;  // lose() has told the membership
    parts_.processes.fail_to_start(number);
    parts_.processes.end(number, SIGKILL);
    handle(NotStarted{number, 0, "its host is not reached any more"});
  }
}

void ElasticJob::give_up_unready() {
  for (auto& [name, place] : places_) {
    HostLink& link = parts_.hosts[place.link];
    if (link.is_here || link.is_ready() || link.is_gone() || Clock::now() < place.ready_by) continue;
    lose(link, link.why_not(parts_.options.network.remote_program));
  }
}

ElasticJob::Process* ElasticJob::find(Rank number) {
  auto found = processes_.find(number);
  return found == processes_.end() ? nullptr : &found->second;
}

void ElasticJob::handle(const NotStarted& report) {
  FirstFailure failure = failure_to_start(report);
  end(report.rank, failure, {true, exit_code_of(failure), "could not be started: " + failure.text});
}

void ElasticJob::handle(const Exited& report) {
  const bool is_failure = report.wait_status != 0 && !wants_another_run(report.wait_status);
  FirstFailure failure = failure_by_end(report, parts_.processes.process_of(report.rank));
  const int code = exit_code_of(failure);
  if (keeping_ && keeping_->process == report.rank) keeping_->has_saved = wants_another_run(report.wait_status);
  // What the rank has left behind (the workers of a data loader) would keep memory from the rank's replacement.
  if (Process* process = find(report.rank)) parts_.hosts[process->host].send(StopRank{report.rank, SIGKILL});
  end(report.rank, std::move(failure), {is_failure, code, describe_end(report.wait_status)});
}

void ElasticJob::end(const Rank& number, std::optional<FirstFailure> failure, const Membership::Ending& ending) {
  Process* process = find(number);
  if (process == nullptr) return;
  kill_at_.erase(number);
  if (failure) {
    failure->rank = Rank{process->rank};
    failure->host = parts_.hosts[process->host].name;
    process->failure = std::move(failure);
  }
  if (process->rank < 0) parts_.processes.leave_out(number);  // it has had no part in the training
  if (wire_up_ != nullptr) wire_up_->generations().end(number.value, ending.text);
  membership_.ended(Worker{static_cast<std::uint64_t>(number.value)}, ending);
}

// Two names of one machine would be two nodes to the ranks, and their slots are counted twice.
void ElasticJob::handle(const HostLink& host, const Ready& report) {
  for (HostLink& other : parts_.hosts)
    if (&other != &host && !other.is_gone() && other.node_id == report.node_id)
      return lose(const_cast<HostLink&>(host), "it is the same machine as " + other.name);
}

void ElasticJob::lose(HostLink& host, const std::string& why) {
  const auto at = static_cast<std::size_t>(&host - &*parts_.hosts.begin());
  if (!lost_links_.insert(at).second) return;
  for (auto& [number, process] : processes_) {
    if (process.host != at || parts_.processes.has_ended(number)) continue;
    process.failure = failure_by_loss(Rank{process.rank}, parts_.processes.process_of(number), why);
    process.failure->host = host.name;
    parts_.processes.end(number, SIGKILL);
    if (process.rank < 0) parts_.processes.leave_out(number);
    kill_at_.erase(number);
    wire_up_->generations().end(number.value, "was lost with its host " + host.name);
  }
  // Without an agent there, the command that leads to the host may have something to clear away.
  host.signal_way(host.channel.was_greeted() ? SIGKILL : SIGTERM);
  host.channel.close();
  host.be_gone();
  for (const auto& [name, place] : places_)
    if (place.link == at) membership_.host_lost(name, why);
  ask_again_at_ = Clock::now();
}

std::optional<ElasticJob::End> ElasticJob::end_with_job_around() {
  const auto& ask = parts_.options.elastic->ask_for_end_of_job_around;
  if (!ask || keeping_) return std::nullopt;
  if (ask_again_at_ && Clock::now() >= *ask_again_at_ && job_around_.begin(ask))
    ask_again_at_ = !lost_links_.empty() ? std::optional(Clock::now() + time_to_ask_again) : std::nullopt;
  std::string text = job_around_.take().value_or("");
  if (text.empty()) return std::nullopt;
  has_ended_ = true;
  leave_out_newcomers();
  return End{{}, -1, true, std::move(text)};
}

void ElasticJob::state_asks() {
  for (const bootstrap::AskForPlace& ask : wire_up_->take_asks()) {
    std::optional<std::int64_t> step = ask.step > 0 ? std::optional(ask.step - 1) : std::nullopt;
    membership_.asks(Worker{static_cast<std::uint64_t>(ask.process)},
                     {static_cast<Membership::Cause>(ask.cause), step, ask.keeps});
  }
}

std::optional<ElasticJob::End> ElasticJob::step() {
  if (wire_up_ == nullptr || has_ended_) return std::nullopt;
  if (auto end = end_with_job_around()) return end;
  if (keeping_) return step_keeping();
  look_for_hosts();
  state_asks();
  kill_overdue();
  give_up_unready();
  send_pending();
  wake_at_.reset();
  for (;;) {
    const Membership::Step step = membership_.next();
    if (std::holds_alternative<Membership::GoOn>(step)) return std::nullopt;
    if (const auto* wait = std::get_if<Membership::WaitUntil>(&step)) {
      wake_at_ = wait->when;
      return std::nullopt;
    }
    if (const auto* end = std::get_if<Membership::End>(&step)) {
      if (begin_keeping(*end)) return std::nullopt;
      has_ended_ = true;
      return end_of(*end);
    }
    if (const auto* start = std::get_if<Membership::Start>(&step)) carry_out(*start);
    else if (const auto* stop = std::get_if<Membership::Stop>(&step)) carry_out(*stop);
    else if (const auto* assign = std::get_if<Membership::Assign>(&step)) carry_out(*assign);
    else if (const auto* tell = std::get_if<Membership::Tell>(&step)) carry_out(*tell);
    else if (const auto* refuse = std::get_if<Membership::Refuse>(&step))
      wire_up_->generations().refuse(number_of(refuse->worker).value, refuse->why);
    else if (const auto* out = std::get_if<Membership::TakeOut>(&step))
      parts_.console.say((out->slot ? "slot " + std::to_string(*out->slot) + " of host " : "host ") + out->host +
                         " gets no more ranks" + (out->until ? " for a while" : "") + ": " + out->why);
    else if (const auto* note = std::get_if<Membership::Note>(&step)) parts_.console.say(note->text);
  }
}

void ElasticJob::carry_out(const Membership::Start& step) {
  const Rank number = number_of(step.worker);
  const Place place = place_of(step.host);
  processes_[number].host = place.link;
  parts_.processes.admit(number);
  if (Status admitted = parts_.console.printer().admit(number, step.host + "." + std::to_string(step.slot)); !admitted)
    parts_.console.say(admitted.error().message);
  parts_.console.printer().set_label(number, "new on " + step.host + "." + std::to_string(step.slot));
  parts_.console.say_if_verbose("starting a process on " + title_of(step));
  auto order = order_for(step, place);
  if (!order) return handle(NotStarted{number, 0, order.error().message});
  pending_.push_back({place.link, std::move(*order)});
  send_pending();
}

Result<StartRank> ElasticJob::order_for(const Membership::Start& step, const Place& place) {
  const JobOptions& options = parts_.options;
  const Rank number = number_of(step.worker);
  auto wiring = wire_up_->variables_for(number);
  if (!wiring) return wiring.error();
  Environment all = parts_.hosts[place.link].is_here ? parts_.environment : exportable(parts_.environment);
  for (const auto& [name, value] : options.variables) all.set(name, value);
  for (const auto& [name, value] : *wiring) all.set(name, value);
  all.set("HOROVOD_ELASTIC", "1");
  all.set("HOROVOD_ELASTIC_PROCESS", std::to_string(number.value));
  all.set("HOROVOD_ELASTIC_SLOT", std::to_string(place.first_slot + step.slot));
  all.set("HOROVOD_HOSTNAME", step.host);
  all.set("HOROVOD_LOCAL_RANK", std::to_string(step.slot));  // until it has a place
  all.set("PYTHONUNBUFFERED", "1");                          // Python prints each line at once
  StartRank order;
  order.rank = number;
  order.title = title_of(step);
  order.program = options.program;
  order.command = options.command;
  for (const auto& [name, value] : all.variables()) order.environment.push_back(name + "=" + value);
  order.folder = working_folder();
  order.local_rank = place.first_slot + step.slot;
  return order;
}

void ElasticJob::carry_out(const Membership::Stop& step) {
  const Rank number = number_of(step.worker);
  Process* process = find(number);
  if (process == nullptr) return;
  wire_up_->generations().refuse(number.value, step.why);
  parts_.processes.leave_out(number);
  if (std::erase_if(pending_, [&](const PendingStart& each) { return each.order.rank == number; }) > 0) {
    parts_.processes.end(number, 0);  // it was never started
    return membership_.ended(step.worker, {});
  }
  parts_.hosts[process->host].send(StopRank{number, SIGTERM});
  kill_at_[number] = Clock::now() + parts_.options.grace;
}

// SIGTERM alone ends a program that does not catch it, and that program prints nothing then.
void ElasticJob::refuse_asks() {
  if (wire_up_ == nullptr) return;
  if (!refuse_at_) refuse_at_ = Clock::now() + time_to_end_by_signal;
  if (Clock::now() < *refuse_at_) return;
  for (const bootstrap::AskForPlace& ask : wire_up_->take_asks())
    wire_up_->generations().refuse(ask.process, "the job ends");
  if (std::exchange(has_refused_, true)) return;
  for (const auto& [number, process] : processes_) wire_up_->generations().refuse(number.value, "the job ends");
}

std::string ElasticJob::name_of(Rank number) const {
  auto found = processes_.find(number);
  if (found == processes_.end() || found->second.rank < 0) return "a process that has no rank yet";
  return "rank " + std::to_string(found->second.rank);
}

void ElasticJob::kill_overdue() {
  const Clock::time_point now = Clock::now();
  for (auto& [number, when] : kill_at_)
    if (when <= now) parts_.hosts[processes_[number].host].send(StopRank{number, SIGKILL});
  std::erase_if(kill_at_, [now](const auto& each) { return each.second <= now; });
}

void ElasticJob::carry_out(const Membership::Assign& step) {
  const Rank number = number_of(step.place.worker);
  if (step.epoch != std::exchange(epoch_, step.epoch)) {
    parts_.console.say_if_verbose("generation " + std::to_string(step.epoch) + " of " + std::to_string(step.size) +
                                  " ranks begins");
    for (auto& [other, process] : processes_) process.rank = -1;
    for (auto& [other, process] : processes_)
      if (parts_.processes.has_ended(other)) parts_.processes.leave_out(other);
  }
  Process& process = processes_[number];
  process.rank = step.place.rank.value;
  parts_.console.printer().set_label(number, std::to_string(process.rank));
  wire_up_->generations().assign({number.value, step.epoch, process.rank, step.size, step.place.local_rank,
                                  step.place.local_size, step.place.cross_rank, step.place.cross_size, step.newcomers});
}

void ElasticJob::carry_out(const Membership::Tell& step) {
  wire_up_->generations().send_news(number_of(step.worker).value, seconds_since_1970(),
                                    static_cast<std::uint8_t>(step.change));
}

bool ElasticJob::begin_keeping(const Membership::End& step) {
  if (step.reason != Membership::Reason::too_few || !step.keeper) return false;
  const Rank number = number_of(*step.keeper);
  keeping_ = Keeping{step, number, Clock::now() + parts_.options.elastic->membership.timeout};
  parts_.console.say(membership_.describe(*step.keeper) +
                     " writes a checkpoint of its last commit, since there are too "
                     "few ranks to go on");
  wire_up_->generations().send_news(number.value, seconds_since_1970(), bootstrap::HostNews::keep);
  wire_up_->generations().refuse(number.value, step.text);
  return true;
}

std::optional<ElasticJob::End> ElasticJob::step_keeping() {
  kill_overdue();
  const bool has_process_ended = parts_.processes.has_ended(keeping_->process);
  if (!has_process_ended && Clock::now() < keeping_->until) return std::nullopt;
  has_ended_ = true;
  End end = end_of(keeping_->end);
  if (!keeping_->has_saved) {
    end.text += has_process_ended ? "; no checkpoint was written" : "; the checkpoint was not written in time";
    return end;
  }
  for (auto& [number, process] : processes_)
    if (number != keeping_->process) parts_.processes.leave_out(number);
  return End{{}, -1, false, end.text + "; the training was saved"};
}

void ElasticJob::leave_out_newcomers() {
  for (auto& [number, process] : processes_)
    if (process.rank < 0) parts_.processes.leave_out(number);
}

ElasticJob::End ElasticJob::end_of(const Membership::End& step) {
  End end;
  end.is_failure = step.reason != Membership::Reason::finished;
  end.text = step.text;
  leave_out_newcomers();
  if (!end.is_failure || !step.first_failure) return end;
  const Rank number = number_of(*step.first_failure);
  const Process* process = find(number);
  if (process == nullptr || !process->failure) return end;
  end.failure = process->failure;
  end.process = number.value;
  return end;
}

// What step() does no more is not due either, else horovodrun would not rest.
milliseconds ElasticJob::left() const {
  std::optional<Clock::time_point> next;
  auto sooner = [&next](Clock::time_point when) { next = next ? std::min(*next, when) : when; };
  if (refuse_at_ && !has_refused_) sooner(*refuse_at_);
  if (!has_ended_) {
    for (const auto& [number, when] : kill_at_) sooner(when);
    if (keeping_) sooner(keeping_->until);
  }
  if (!has_ended_ && !keeping_ && parts_.options.elastic->ask_for_end_of_job_around) {
    if (job_around_.is_under_way()) sooner(Clock::now() + time_to_look_again);
    else if (ask_again_at_) sooner(*ask_again_at_);
  }
  if (is_going_on()) {
    if (wake_at_) sooner(*wake_at_);
    for (const auto& [name, place] : places_)
      if (const HostLink& link = parts_.hosts[place.link]; !link.is_here && !link.is_ready() && !link.is_gone())
        sooner(std::min(place.ready_by, Clock::now() + milliseconds(500)));  // the next commands to hosts may be due
    sooner(Clock::now() + std::min<milliseconds>(discovery_.left(), std::chrono::hours(1)));
  }
  if (!next) return std::chrono::hours(1);
  return std::max(std::chrono::ceil<milliseconds>(*next - Clock::now()), milliseconds(0));
}

}  // namespace hvd::launcher
