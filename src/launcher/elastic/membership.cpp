#include "launcher/elastic/membership.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace hvd::launcher {
namespace {

constexpr unsigned bit_of(Membership::Change change) {
  return static_cast<unsigned>(change);
}

}  // namespace

Membership::Membership(Settings settings)
    : settings_(std::move(settings)), pool_(settings_.cooldown), since_(settings_.now()), reported_(since_) {}

// ---- facts

void Membership::hosts_found(const std::vector<HostSlots>& hosts) {
  has_found_hosts_ = true;
  why_not_found_.clear();
  pool_.find(hosts);
}

void Membership::discovery_failed(const std::string& why) {
  if (has_found_hosts_) {
    if (std::exchange(why_not_found_, why) != why) note(why + "; the job goes on with the hosts that it knows");
    return;
  }
  end(Reason::no_discovery, why);
}

void Membership::asks(Worker worker, const Ask& ask) {
  auto found = workers_.find(worker);
  if (found == workers_.end() || !found->second.has_process()) {
    steps_.push_back(
        Refuse{worker, "this process is no part of the job any more: it was taken for lost, or was ended"});
    return;
  }
  Member& member = found->second;
  step_ = std::max(step_, ask.step);
  member.step = ask.step;
  member.keeps = ask.keeps;
  if (member.phase == Phase::starting) member.since = settings_.now();
  if (member.phase == Phase::in_world) {
    has_failed_round_ = has_failed_round_ || ask.cause == Cause::failed;
    if (ask.cause == Cause::hosts_updated) interrupted_ = epoch_;
    begin_gathering();
  }
  member.phase = Phase::waiting;
}

void Membership::ended(Worker worker, const Ending& ending) {
  auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  Member& member = found->second;
  if (!member.has_process()) {
    if (member.phase == Phase::stopping) member.phase = Phase::gone;
    return;
  }
  if (!member.rank) {
    const bool has_finished = !ending.is_failure && epoch_ == 0;
    fail_without_rank(worker, ending.is_failure ? ending.text : "has ended before it had a rank",
                      has_finished ? Phase::finished : Phase::gone);
    if (ending.is_failure && epoch_ == 0 && !first_early_failure_) first_early_failure_ = worker;
  } else if (ending.is_failure) {
    fail(worker, {.code = ending.code, .how = ending.text});
  } else {
    member.phase = Phase::finished;
  }
}

void Membership::host_lost(const std::string& host, const std::string& why) {
  std::vector<Worker> lost;
  for (const auto& [worker, member] : workers_)
    if (member.slot.host == host && (member.has_process() || member.phase == Phase::stopping)) lost.push_back(worker);
  if (lost.empty() && pool_.is_out(host, settings_.now())) return;
  for (Worker worker : lost) {
    Member& member = workers_.at(worker);
    if (!member.has_process()) {
      member.phase = Phase::gone;
    } else if (member.rank) {
      fail(worker, {.how = "was lost with its host: " + why, .is_host_lost = true});
    } else {
      member.phase = Phase::gone;
      has_lost_early_ = has_lost_early_ || epoch_ == 0;
    }
  }
  take_out_host(host, "the host was lost: " + why);
}

void Membership::begin_gathering() {
  if (is_gathering_) return;
  is_gathering_ = true;
  is_reset_counted_ = false;
  since_ = reported_ = settings_.now();
}

// A rank of the world has failed.
void Membership::fail(Worker worker, const HowFailed& it) {
  Member& member = workers_.at(worker);
  failures_.push_back(
      {worker, member.slot, it.code, describe(worker) + " " + it.how, it.is_host_lost, it.is_host_lost});
  member.phase = it.phase;
  begin_gathering();
}

// Its slot alone is out, whatever else is on the host: the ranks there have not failed.
void Membership::fail_without_rank(Worker worker, const std::string& how, Phase phase) {
  std::string who = describe(worker);
  Member& member = workers_.at(worker);
  member.phase = phase;
  if (epoch_ == 0) has_failed_early_ = has_lost_early_ = true;
  note(who + " " + how);
  if (epoch_ == 0) return take_out_slot(member.slot, who + " " + how);
  lose_slot(member, who + " " + how);
}

// ---- steps

Membership::Step Membership::next() {
  if (steps_.empty() && !end_) decide(settings_.now());
  if (steps_.empty()) return end_ ? Step(*end_) : wait(settings_.now());
  Step step = std::move(steps_.front());
  steps_.pop_front();
  return step;
}

void Membership::decide(Time now) {
  stop_late_workers(now);
  if (is_gathering_ || count_ranks(Phase::finished) == world_.size()) gather(now);
  if (end_) return;
  stop_workers_without_slot(now);
  start_workers(now);
  notify_first_rank(now);
  report_wait(now);
}

void Membership::stop_late_workers(Time now) {
  const std::string limit = std::to_string(settings_.timeout.count() / 1000) + " s (--elastic-timeout)";
  for (auto& [worker, member] : workers_) {
    if (member.phase == Phase::starting && now >= member.since + settings_.timeout) {
      stop(worker, "it has not called hvd.init() within " + limit);
      fail_without_rank(worker, "has not called hvd.init() within " + limit, Phase::stopping);
    } else if (member.phase == Phase::in_world && is_gathering_ && now >= gathering_ends()) {
      stop(worker, "the others have waited for it for " + limit);
      fail(worker, {.code = -1, .how = "has not ended its round within " + limit, .phase = Phase::stopping});
    }
  }
}

void Membership::stop_workers_without_slot(Time now) {
  for (const auto& [worker, member] : workers_)
    if (member.has_process() && !member.rank && !is_usable(member, now)) stop(worker, "its slot is not used any more");
}

void Membership::gather(Time now) {
  if (epoch_ == 0) return gather_first(now);
  if (count_ranks(Phase::finished) == world_.size()) return end(Reason::finished, "");
  if (!judge_failures(now)) return;
  if (count_ranks(Phase::finished) > 0)
    return end(Reason::finished_early,
               failures_.empty() ? text_about_finished() +
                                       " ended without a failure, and other ranks still need the job: all ranks "
                                       "must make the same number of steps"
                                 : text_about_failures() + ", after other ranks had finished");
  if (is_begun_anew()) step_.reset();
  if (!has_survivor())
    return end(Reason::all_failed,
               text_about_failures() + "; no rank is left that has the state of the training, so nothing can go on");
  if (!is_reset_counted_ && !is_begun_anew() && !may_reset()) return;
  begin_world_if_enough(now);
}

void Membership::gather_first(Time now) {
  const bool has_process = std::ranges::any_of(workers_, [](const auto& each) { return each.second.has_process(); });
  if (has_failed_early_ && !has_process) {
    if (count(Phase::finished) == workers_.size()) return end(Reason::finished, "");  // a program without hvd.init()
    return end(Reason::all_failed, "all processes have ended before they had ranks");
  }
  bool is_time_over = now >= gathering_ends();
  if (count(Phase::starting) > 0 && std::cmp_less(count(Phase::waiting), settings_.most) && !is_time_over) return;
  begin_world_if_enough(now);
}

// Decides about the hosts of the ranks that failed. Returns false while ranks of the world have not asked yet; those on
// a host that goes out are not waited for.
bool Membership::judge_failures(Time now) {
  std::set<std::string> hosts;
  for (const Failure& each : failures_)
    if (!each.is_judged) hosts.insert(each.slot.host);
  std::size_t late = 0;
  for (Worker worker : world_) {
    const Member& member = workers_.at(worker);
    if (member.phase != Phase::in_world) continue;
    if (!hosts.contains(member.slot.host)) return false;
    ++late;
  }
  for (Failure& each : failures_) {
    if (each.is_judged) continue;
    if (!pool_.is_out(each.slot.host, now)) {
      if (is_host_dispensable(each, now)) {
        take_out_host(each.slot.host, each.text);
      } else if (late > 0) {
        return false;
      } else {
        lose_slot(workers_.at(each.worker), each.text);
      }
    }
    each.is_judged = true;
  }
  return true;
}

bool Membership::is_host_dispensable(const Failure& failure, Time now) const {
  int workers = 0;  // on other hosts
  bool is_state_elsewhere = false, may_be_state_here = false;
  for (const auto& [worker, member] : workers_) {
    const bool is_late = member.phase == Phase::in_world;
    if (!is_late && member.phase != Phase::waiting) continue;
    if (member.slot.host == failure.slot.host) {
      may_be_state_here = may_be_state_here || is_late || member.step;
    } else if (is_usable(member, now)) {
      ++workers;
      is_state_elsewhere = is_state_elsewhere || (!is_late && member.step);
    }
  }
  return workers >= settings_.least && (is_state_elsewhere || !may_be_state_here);
}

bool Membership::has_survivor() const {
  return std::ranges::any_of(world_, [&](Worker worker) {
    const Member& member = workers_.at(worker);
    return member.phase == Phase::waiting && (member.step || !step_);
  });
}

bool Membership::may_reset() {
  is_reset_counted_ = true;
  if (settings_.reset_limit && resets_ >= *settings_.reset_limit) {
    end(Reason::reset_limit, "Horovod was shutdown because number of resets during elastic job exceeded limit: " +
                                 std::to_string(*settings_.reset_limit));
    return false;
  }
  ++resets_;
  return is_failure_new();
}

// A host that is lost says nothing about the program, so it is not compared.
bool Membership::is_failure_new() {
  if (failures_.empty() ? !has_failed_round_ : failures_.front().is_host_lost) return true;
  Mark mark{failures_.empty() ? std::numeric_limits<int>::min() : failures_.front().code, {}};
  for (Worker worker : world_) {
    const Member& member = workers_.at(worker);
    if (member.phase == Phase::waiting) mark.step = std::max(mark.step, member.step);
  }
  equal_failures_ = mark_ == mark ? equal_failures_ + 1 : 1;
  mark_ = mark;
  if (equal_failures_ < most_equal_failures) return true;
  end(Reason::equal_failures, text_about_failures() + "; this is the " + std::to_string(equal_failures_) +
                                  "rd time that a rank fails so and the training has not come further since the first: "
                                  "it would happen again");
  return false;
}

// All ranks have called hvd.shutdown() and hvd.init() by themselves, without the state of a training.
bool Membership::is_begun_anew() const {
  return failures_.empty() && !has_failed_round_ && interrupted_ != epoch_ &&
         std::ranges::none_of(world_, [&](Worker worker) { return workers_.at(worker).step.has_value(); });
}

// After a failed round a rank syncs; one that was told of other hosts may leave that out, also after the ranks of the
// world that followed could not meet.
bool Membership::is_sync_doubtful() const {
  return has_failed_round_ && interrupted_ && *interrupted_ + 1 >= epoch_;
}

void Membership::begin_world_if_enough(Time now) {
  const std::vector<Candidate> all = candidates(now);
  const std::size_t there = all.size();
  const bool have_state = !step_ || std::ranges::any_of(all, &Candidate::has_state);
  if (std::cmp_greater_equal(there, needed()) && have_state) return begin_world(now);
  const bool can_be_enough =
      !settings_.are_hosts_fixed || std::cmp_greater_equal(pool_.usable_at(std::max(now, gathering_ends())), needed());
  if (can_be_enough && now < gathering_ends()) return;
  std::string text = text_about_failures();
  if (!text.empty()) text += "; ";
  if (std::cmp_greater_equal(there, needed()))
    return end(Reason::all_failed, text + "no host is left that has the state of the training");
  text += std::to_string(needed()) + " ranks are needed (" + (needed() == settings_.least ? "--min-np" : "-np") +
          "), " + std::to_string(there) + " can take part";
  if (can_be_enough) text += " after " + std::to_string(settings_.timeout.count() / 1000) + " s (--elastic-timeout)";
  else text += ", and the hosts of this job are fixed";
  end(Reason::too_few, std::move(text));
}

void Membership::begin_world(Time now) {
  const std::vector<WorldPlace> places = rank_workers(candidates(now), settings_.most);
  const bool must_sync = is_sync_doubtful();
  if (epoch_ > 0) note(text_about_world(places.size()));
  if (must_sync) interrupted_ = epoch_;
  ++epoch_;
  for (Worker worker : world_) {
    Member& member = workers_.at(worker);
    member.has_advanced = member.has_advanced || first_step_ < step_;
    member.rank.reset();
  }
  first_step_ = step_;
  world_.clear();
  int newcomers = 0;
  for (const WorldPlace& place : places)
    if (!workers_.at(place.worker).step) ++newcomers;
  if (must_sync) newcomers = std::max(newcomers, 1);
  for (const WorldPlace& place : places) {
    Member& member = workers_.at(place.worker);
    member.rank = place.rank;
    member.phase = Phase::in_world;
    world_.push_back(place.worker);
    steps_.push_back(Assign{epoch_, static_cast<int>(places.size()), place, newcomers});
  }
  is_gathering_ = false;
  has_failed_round_ = false;
  failures_.clear();
  told_ = 0;
}

void Membership::start_workers(Time now) {
  const std::vector<HostPool::Slot> slots = pool_.usable(now);
  if (!has_started_) {
    if (std::cmp_less(slots.size(), settings_.first)) return;
    has_started_ = true;
    since_ = now;
    note_missing_spares(slots.size());
  }
  if (count_ranks(Phase::finished) > 0) return;  // the job ends
  std::set<std::string> unjudged;
  for (const Failure& each : failures_)
    if (!each.is_judged) unjudged.insert(each.slot.host);
  std::set<HostPool::Slot> taken;
  std::int64_t there = 0;
  for (const auto& [worker, member] : workers_) {
    if (member.has_process() || member.phase == Phase::stopping) taken.insert(member.slot);
    if (member.has_process() && is_usable(member, now)) ++there;
  }
  const std::int64_t wanted = std::int64_t{settings_.most} + settings_.spares;
  for (const HostPool::Slot& slot : slots) {
    if (there >= wanted) break;
    if (taken.contains(slot) || unjudged.contains(slot.host)) continue;
    Worker worker{workers_.size()};
    workers_[worker] = Member{.slot = slot, .since = now};
    steps_.push_back(Start{worker, slot.host, slot.index});
    ++there;
  }
}

// Only slots beyond those of the ranks hold spares.
void Membership::note_missing_spares(std::size_t slots) {
  const bool is_auto = settings_.spares == spares_on_all_slots;
  const std::int64_t there = std::max<std::int64_t>(0, static_cast<std::int64_t>(slots) - settings_.most);
  if (!settings_.are_hosts_fixed || there >= (is_auto ? 1 : settings_.spares)) return;
  note("--spares " + (is_auto ? "auto" : std::to_string(settings_.spares)) + ": only " + std::to_string(there) +
       " can wait, because the hosts have " + std::to_string(slots) + " slots and the job may have " +
       std::to_string(settings_.most) + " ranks: give the hosts more slots, or a smaller --max-np or -np");
}

// Since when the first of the workers that could be added waits.
std::optional<Membership::Time> Membership::first_newcomer_since(Time now) const {
  std::optional<Time> since;
  for (const auto& [worker, member] : workers_)
    if (member.phase == Phase::waiting && !member.rank && is_usable(member, now) && (!since || member.since < *since))
      since = member.since;
  return since;
}

void Membership::notify_first_rank(Time now) {
  if (is_gathering_ || count_ranks(Phase::in_world) != world_.size()) return;
  int staying = 0, waiting = 0, starting = 0;
  for (const auto& [worker, member] : workers_) {
    if (!member.has_process() || !is_usable(member, now)) continue;
    ++(member.rank ? staying : member.phase == Phase::waiting ? waiting : starting);
  }
  unsigned change = 0;
  if (std::cmp_less(staying, world_.size())) change |= bit_of(Change::removed);
  const bool waits_for_more = starting > 0 && staying + waiting < settings_.most &&
                              now < first_newcomer_since(now).value_or(now) + patience_for_newcomers;
  if (waiting > 0 && staying < settings_.most && !waits_for_more) change |= bit_of(Change::added);
  change &= ~told_;
  if (change == 0) return;
  told_ |= change;
  steps_.push_back(Tell{world_.front(), static_cast<Change>(change)});
}

Membership::Step Membership::wait(Time now) const {
  std::optional<Time> when;
  auto add = [&](Time time) {
    if (time > now && (!when || time < *when)) when = time;
  };
  if (is_gathering_) add(gathering_ends());
  if (auto due = report_due()) add(*due);
  if (auto next = pool_.next_return(now)) add(*next);
  for (const auto& [worker, member] : workers_)
    if (member.phase == Phase::starting) add(member.since + settings_.timeout);
  if (auto since = first_newcomer_since(now); since && !is_gathering_) add(*since + patience_for_newcomers);
  return when ? Step(WaitUntil{*when}) : Step(GoOn{});
}

// ---- parts of steps

void Membership::take_out_host(const std::string& host, const std::string& why) {
  const Time now = settings_.now();
  steps_.push_back(TakeOut{host, {}, pool_.take_out(host, now, settings_.draw()), why});
  for (const auto& [worker, member] : workers_)
    if (member.slot.host == host && member.has_process()) stop(worker, "its host is not used any more: " + why);
}

void Membership::take_out_slot(const HostPool::Slot& slot, const std::string& why) {
  const Time now = settings_.now();
  steps_.push_back(TakeOut{slot.host, slot.index, pool_.take_out(slot.host, slot.index, now, settings_.draw()), why});
}

// A slot without a cooldown may fail several times before it goes out. With a cooldown, the user has chosen how long a
// failed slot stays out. Progress that the others make without the slot's processes does not count for it.
void Membership::lose_slot(const Member& member, const std::string& why) {
  if (!settings_.cooldown) {
    int& failures = slot_failures_[member.slot];
    if (member.has_advanced || (member.rank && first_step_ < step_)) failures = 0;
    if (++failures < most_failures_of_slot) return;
  }
  take_out_slot(member.slot, why);
}

void Membership::stop(Worker worker, const std::string& why) {
  workers_.at(worker).phase = Phase::stopping;
  steps_.push_back(Stop{worker, why});
}

void Membership::note(std::string text) {
  steps_.push_back(Note{std::move(text)});
}

void Membership::end(Reason reason, std::string text) {
  if (end_) return;
  end_ = End{reason, std::move(text), {}, {}};
  if (!failures_.empty()) end_->first_failure = failures_.front().worker;
  else if (epoch_ == 0) end_->first_failure = first_early_failure_;
  for (Worker worker : world_) {
    const Member& member = workers_.at(worker);
    if (member.phase != Phase::waiting || !member.step || !member.keeps) continue;
    if (!end_->keeper || workers_.at(*end_->keeper).step < member.step) end_->keeper = worker;
  }
}

std::size_t Membership::count(Phase phase) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(workers_, [&](const auto& each) { return each.second.phase == phase; }));
}

std::size_t Membership::count_ranks(Phase phase) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(world_, [&](Worker each) { return workers_.at(each).phase == phase; }));
}

std::vector<Candidate> Membership::candidates(Time now) const {
  std::vector<Candidate> all;
  for (const auto& [worker, member] : workers_)
    if (member.phase == Phase::waiting && is_usable(member, now))
      all.push_back({worker, member.slot, pool_.place_of(member.slot.host), member.rank, member.step.has_value()});
  return all;
}

}  // namespace hvd::launcher
