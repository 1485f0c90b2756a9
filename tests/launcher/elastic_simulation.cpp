#include "launcher/elastic_simulation.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <random>
#include <utility>

#include "base/overloaded.hpp"
#include "launcher/elastic/membership.hpp"

namespace hvd::launcher::simulation {
namespace {

using Time = Membership::Time;
using Milliseconds = std::chrono::milliseconds;
using Cause = Membership::Cause;

constexpr int most_hosts = 5;
constexpr int goal = 40;  // commits until the training has finished
constexpr int most_events = 20'000;
constexpr Milliseconds silent(10'000);  // until a peer that says nothing is taken for lost

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  int between(int low, int high) {  // both included
    return low + static_cast<int>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  std::size_t index(std::size_t size) { return static_cast<std::size_t>(between(0, static_cast<int>(size) - 1)); }
  bool one_in(int number) { return between(1, number) == 1; }
  Milliseconds up_to(Milliseconds most) { return Milliseconds(between(0, static_cast<int>(most.count()))); }
  double draw() { return static_cast<double>(engine_() >> 11) * 0x1.0p-53; }

 private:
  std::mt19937_64 engine_;
};

// What exists, whether the membership knows it or not.
struct Process {
  std::string host;
  int slot = 0;
  bool lives = true, hangs = false;
  bool was_stopped = false;                          // the membership has told it to end
  bool is_asking = false;                            // it waits for an answer
  bool was_heard = false;                            // the membership has had its ask and has not answered
  bool has_finished = false, is_known_gone = false;  // as far as the membership was told
  Epoch epoch = 0;                                   // of its last identity
  Rank rank{};
  std::optional<std::int64_t> step{};
};
struct Host {
  bool is_listed = false, is_up = true, is_cut_off = false, is_bad = false;
  int slots = 0;
};
struct World {
  Epoch epoch = 0;
  std::vector<Worker> ranks;
  int step = 0;
  bool trains = false, was_told = false;
  bool is_over = false;  // as the membership knows: a rank has asked or was lost
  unsigned told = 0;
};

class Simulation {
 public:
  explicit Simulation(std::uint64_t seed) : dice_(seed), membership_(draw_settings()) {}

  Outcome run() {
    for (int i = 0; i < most_hosts; ++i)
      hosts_[name_of(i)] = Host{false, true, false, dice_.one_in(8), dice_.between(1, 3)};
    list_enough_hosts();
    if (dice_.one_in(50)) membership_.discovery_failed("the script failed");
    else discover();
    if (dice_.one_in(20)) fault_ = dice_.between(0, goal - 1);
    for (int i = dice_.between(3, 25); i > 0; --i) in(dice_.up_to(Milliseconds(90'000)), [this] { draw_incident(); });
    carry_out();
    for (int events = 0; !has_ended_; ++events) {
      if (events > most_events)
        return close("The job ends or goes on: there were " + std::to_string(most_events) + " events");
      const bool is_time_due = wake_ && (events_.empty() || *wake_ <= events_.top().when);
      if (!is_time_due && events_.empty()) return close("The job ends or goes on: nothing will ever happen any more");
      if (is_time_due) {
        now_ = std::max(now_, *wake_);
      } else {
        now_ = std::max(now_, events_.top().when);
        auto happen = events_.top().happen;
        events_.pop();
        happen();
      }
      carry_out();
    }
    return std::move(outcome_);
  }

 private:
  struct Event {
    Time when;
    std::uint64_t number = 0;
    std::function<void()> happen;
    friend bool operator<(const Event& a, const Event& b) {  // the queue has the greatest first
      return std::pair(b.when, b.number) < std::pair(a.when, a.number);
    }
  };
  static std::string name_of(int host) { return std::string(1, static_cast<char>('a' + host)); }

  Membership::Settings draw_settings() {
    settings_.first = dice_.between(1, 6);
    settings_.least = dice_.between(1, settings_.first);
    if (!dice_.one_in(3)) settings_.most = dice_.between(settings_.first, 8);
    if (settings_.most < 9 && dice_.one_in(2)) settings_.spares = dice_.one_in(3) ? 1000 : dice_.between(1, 2);
    settings_.are_hosts_fixed = dice_.one_in(3);
    settings_.timeout = Milliseconds(dice_.between(20, 60) * 1000);
    if (dice_.one_in(4)) settings_.reset_limit = dice_.between(0, 6);
    if (!dice_.one_in(3))
      settings_.cooldown = CooldownRange{std::chrono::seconds(1), std::chrono::seconds(dice_.between(1, 20))};
    settings_.now = [this] { return now_; };
    settings_.draw = [this] { return dice_.draw(); };
    return settings_;
  }

  // ---- the outside world

  void in(Milliseconds span, std::function<void()> happen) {
    events_.push({now_ + span, ++last_event_, std::move(happen)});
  }
  // News on its way: soon, seldom late.
  void report(std::function<void()> fact) {
    in(dice_.up_to(Milliseconds(dice_.one_in(10) ? 3000 : 50)), std::move(fact));
  }
  void write(const std::string& line) {
    auto since = std::chrono::duration_cast<Milliseconds>(now_ - Time{});
    outcome_.history.push_back(std::to_string(since.count()) + " ms: " + line);
  }
  void require(bool is_so, const char* rule, const std::string& seen) {
    if (!is_so) outcome_.broken_rules.push_back(std::string(rule) + " Seen: " + seen);
  }
  Outcome close(std::string rule) {
    outcome_.broken_rules.push_back(std::move(rule));
    return std::move(outcome_);
  }
  static std::string text(Worker worker) { return "process " + std::to_string(worker.value); }

  void list_enough_hosts() {
    int slots = 0;
    for (auto& [name, host] : hosts_) {
      host.is_listed = slots < settings_.first || dice_.one_in(3);
      if (host.is_listed) slots += host.slots;
    }
    while (slots < settings_.first) ++slots, ++hosts_["a"].slots;
  }

  void discover() {
    report([this] {
      std::vector<HostSlots> found;
      std::string line = "found";
      for (const auto& [name, host] : hosts_)
        if (host.is_listed) found.push_back({name, host.slots});
      found_.clear();
      for (const HostSlots& each : found) found_[each.host] = each.slots;
      for (const HostSlots& each : found) line += " " + each.host + ":" + std::to_string(each.slots);
      write(line);
      membership_.hosts_found(found);
    });
  }

  Process& process(Worker worker) { return processes_.at(worker); }
  bool is_reachable(const Process& it) const { return !hosts_.at(it.host).is_cut_off; }

  void ask(Worker worker, Cause cause) {
    Process& it = process(worker);
    if (!it.lives || it.hangs || it.is_asking) return;
    it.is_asking = true;
    send_ask(worker, cause);
  }
  void send_ask(Worker worker, Cause cause) {
    report([this, worker, cause] {
      Process& it = process(worker);
      if (!it.is_asking) return;
      if (!is_reachable(it)) return in(Milliseconds(2000), [this, worker, cause] { send_ask(worker, cause); });
      write(text(worker) + " asks" + (it.step ? ", at step " + std::to_string(*it.step) : ""));
      it.was_heard = !it.was_stopped && !it.is_known_gone;
      had_state_ = had_state_ || (it.was_heard && it.step);
      if (it.was_heard && it.epoch == world_.epoch) world_.is_over = true;
      membership_.asks(worker, {cause, it.step});
    });
  }

  // The process ends, and the others of its world notice that.
  void end(Worker worker, int code) {
    Process& it = process(worker);
    if (!it.lives) return;
    it.lives = false;
    write(text(worker) + " ends with " + std::to_string(code));
    report_end(worker, code);
    if (code != 0 || !is_complete()) break_world(worker, Milliseconds(100));
  }
  void report_end(Worker worker, int code) {
    report([this, worker, code] {
      Process& it = process(worker);
      if (!is_reachable(it)) return in(Milliseconds(2000), [this, worker, code] { report_end(worker, code); });
      it.has_finished = code == 0 && !it.is_known_gone;
      it.is_known_gone = true;
      it.was_heard = false;
      membership_.ended(worker, {code != 0, code, "exited with " + std::to_string(code)});
    });
  }
  bool is_complete() const { return world_.step >= goal; }

  void break_world(Worker culprit, Milliseconds at_most) {
    const Epoch epoch = process(culprit).epoch;
    if (epoch == 0 || epoch != world_.epoch) return;
    world_.trains = false;
    for (Worker each : world_.ranks)
      if (each != culprit)
        in(dice_.up_to(at_most), [this, each, epoch] {
          if (process(each).epoch == epoch) ask(each, Cause::failed);
        });
  }

  void commit(Epoch epoch) {
    if (epoch != world_.epoch || !world_.trains) return;
    if (world_.step == fault_) return end(world_.ranks[dice_.index(world_.ranks.size())], 1);
    ++world_.step;
    for (Worker each : world_.ranks) process(each).step = world_.step;
    if (is_complete()) {
      world_.trains = false;
      for (Worker each : world_.ranks) in(dice_.up_to(Milliseconds(500)), [this, each] { end(each, 0); });
    } else if (world_.was_told) {
      world_.trains = false;
      for (Worker each : world_.ranks) ask(each, Cause::hosts_updated);
    } else {
      in(dice_.up_to(Milliseconds(4000)), [this, epoch] { commit(epoch); });
    }
  }

  // ---- incidents

  std::optional<Worker> some_process() {
    std::vector<Worker> alive;
    for (const auto& [worker, it] : processes_)
      if (it.lives) alive.push_back(worker);
    if (alive.empty()) return {};
    return alive[dice_.index(alive.size())];
  }

  void draw_incident() {
    auto worker = some_process();
    Host& host = hosts_[name_of(dice_.between(0, most_hosts - 1))];
    switch (dice_.between(1, 10)) {
      case 1:
      case 2:
      case 3:
        if (worker) end(*worker, dice_.one_in(2) ? 137 : dice_.between(1, 3));
        break;
      case 4:
        if (worker && dice_.one_in(8)) end(*worker, 0);
        break;
      case 5:
        if (worker) hang(*worker);
        break;
      case 6:
        if (world_.trains)
          break_world(world_.ranks.front(), Milliseconds(100)), ask(world_.ranks.front(), Cause::failed);
        break;
      case 7: cut_off(name_of(dice_.between(0, most_hosts - 1)), dice_.one_in(2)); break;
      case 8: host.is_bad = !host.is_bad; break;
      default:
        if (settings_.are_hosts_fixed) break;
        if (dice_.one_in(5)) return report([this] { membership_.discovery_failed("the script failed"); });
        if (dice_.one_in(3)) host.slots = dice_.between(1, 4);
        else host.is_listed = !host.is_listed;
        discover();
    }
  }

  void hang(Worker worker) {
    process(worker).hangs = true;
    write(text(worker) + " hangs");
    break_world(worker, silent);
    in(Milliseconds(120'000), [this, worker] { end(worker, 137); });  // somebody ends it
  }

  // The machine dies, or only the network to it does. It comes back in time, with the processes that it still has.
  void cut_off(const std::string& name, bool dies) {
    Host& host = hosts_.at(name);
    if (host.is_cut_off) return;
    host.is_cut_off = true;
    write("host " + name + (dies ? " dies" : " is cut off"));
    std::vector<Worker> there;
    for (auto& [worker, it] : processes_)
      if (it.host == name && it.lives) there.push_back(worker);
    for (Worker each : there) {
      break_world(each, silent);
      if (dies) process(each).lives = process(each).is_asking = false;
    }
    in(dice_.up_to(silent), [this, name] { lose(name); });
    in(silent + dice_.up_to(Milliseconds(60'000)), [this, name] {
      write("host " + name + " is back");
      hosts_.at(name).is_cut_off = false;
    });
  }
  void lose(const std::string& name) {
    for (auto& [worker, it] : processes_)
      if (it.host == name) it.is_known_gone = true, it.was_heard = false;
    write("host " + name + " is lost");
    membership_.host_lost(name, "no answer");
  }

  // ---- the steps of the membership, with their rules

  void carry_out() {
    wake_.reset();
    for (int steps = 0;; ++steps) {
      if (steps > 1000) return require(false, "Steps come to an end.", "1000 steps at one time"), finish("endless");
      Membership::Step step = membership_.next();
      if (std::holds_alternative<Membership::GoOn>(step)) return check_wait(false);
      if (auto* until = std::get_if<Membership::WaitUntil>(&step)) {
        require(until->when > now_, "A wait is for a time that comes.", "one that has passed");
        wake_ = until->when;
        return check_wait(true);
      }
      if (!std::holds_alternative<Membership::Assign>(step)) check_world();
      std::visit([this](const auto& each) { carry_out(each); }, step);
      if (has_ended_) return;
    }
  }
  void carry_out(const Membership::GoOn&) {}
  void carry_out(const Membership::WaitUntil&) {}

  void check_wait(bool has_limit) {
    check_world();
    const std::vector<std::string> whom = membership_.waits_for();
    if (is_training())
      return require(whom.empty(), "Nobody is waited for while a world trains.", whom.empty() ? "" : whom[0]);
    require(!whom.empty(), "Every wait has a culprit.", "no world trains, and nobody is named");
    require(has_limit, "Every wait has a limit.", "no world trains, and there is no limit");
    for (const auto& [worker, it] : processes_)
      if (it.was_heard && !it.was_stopped)
        for (const std::string& each : whom)
          require(!each.starts_with(membership_.describe(worker) + " "), "A culprit is one that has not asked.", each);
  }
  bool is_training() {
    return world_.epoch > 0 && !world_.is_over && std::ranges::none_of(world_.ranks, [&](Worker each) {
             const Process& it = process(each);
             return it.is_known_gone && !it.has_finished;
           });
  }

  void carry_out(const Membership::Start& it) {
    write("start " + text(it.worker) + " on " + it.host + std::to_string(it.slot));
    require(!processes_.contains(it.worker), "A worker's number is never given again.", text(it.worker));
    require(!is_out(it.host, it.slot), "What is out gets no process.", it.host + std::to_string(it.slot));
    int there = 0;
    for (const auto& [worker, other] : processes_) {
      require(other.is_known_gone || other.host != it.host || other.slot != it.slot, "A slot has one process.",
              text(worker) + " and " + text(it.worker) + " on " + it.host + std::to_string(it.slot));
      if (!other.is_known_gone && !other.was_stopped && !is_leaving(other)) ++there;
    }
    require(there < std::int64_t{settings_.most} + settings_.spares,
            "There are no more processes than ranks and spares.", std::to_string(there + 1));
    processes_[it.worker] = Process{.host = it.host, .slot = it.slot};
    const Worker worker = it.worker;
    if (hosts_.at(it.host).is_cut_off) {
      process(worker).lives = false;
      report([this, name = it.host] { lose(name); });
      return;
    }
    in(dice_.up_to(Milliseconds(dice_.one_in(20) ? 80'000 : 5000)), [this, worker] {
      if (hosts_.at(process(worker).host).is_bad || dice_.one_in(30)) return end(worker, 1);
      ask(worker, Cause::first);
    });
  }
  bool is_leaving(const Process& it) const {
    auto host = found_.find(it.host);
    return host == found_.end() || it.slot >= host->second;
  }

  void carry_out(const Membership::Stop& it) {
    write("stop " + text(it.worker) + ": " + it.why);
    Process& stopped = process(it.worker);
    const bool has_another_state = std::ranges::any_of(processes_, [&](const auto& each) {
      const Process& other = each.second;
      return other.step && !other.is_known_gone && !other.was_stopped && &other != &stopped;
    });
    require(!stopped.was_heard || !stopped.step || has_another_state,
            "The last that waits with the state is not stopped.", text(it.worker));
    stopped.was_stopped = true;
    stopped.was_heard = false;
    if (!is_reachable(stopped)) return;
    in(dice_.up_to(Milliseconds(5000)), [this, worker = it.worker] {
      process(worker).is_asking = false;
      end(worker, 143);
    });
  }
  void carry_out(const Membership::Refuse& it) {
    write("refuse " + text(it.worker));
    ++outcome_.refused;
    const Process& refused = process(it.worker);
    require(refused.is_known_gone || refused.was_stopped, "Only who is lost or was stopped is refused.",
            text(it.worker));
    process(it.worker).was_heard = process(it.worker).is_asking = false;
    end(it.worker, 1);
  }

  void carry_out(const Membership::Assign& it) {
    Process& member = process(it.place.worker);
    const std::string who = text(it.place.worker) + " in epoch " + std::to_string(it.epoch);
    write(who + " is rank " + std::to_string(it.place.rank.value) + " of " + std::to_string(it.size));
    if (it.epoch != next_.epoch) {
      require(std::cmp_equal(it.epoch, outcome_.worlds + 1), "Epochs are given once, in order.", who);
      outcome_.worlds = static_cast<int>(it.epoch);
      next_ = World{};
      next_.epoch = it.epoch;
      next_size_ = it.size;
      require_end_of_old_world();
    }
    require(member.was_heard, "An identity is given only to a process that waits for one.", who);
    require(!member.was_stopped && !member.is_known_gone, "Who is stopped or lost gets no rank.", who);
    require(!is_out(member.host, member.slot), "A blacklisted host gets no rank.", who);
    require(!is_leaving(member), "A slot that is not found any more gets no rank.", who);
    require(it.size == next_size_, "All ranks of a world are told one size.", who);
    require(it.place.rank.value == static_cast<int>(next_.ranks.size()), "Ranks are given in order.", who);
    require(it.size >= (it.epoch == 1 ? 1 : settings_.least) && it.size <= settings_.most,
            "The size of a world is within its limits.", std::to_string(it.size));
    require(member.epoch < it.epoch, "A process has one identity in an epoch.", who);
    next_.ranks.push_back(it.place.worker);
    member.was_heard = member.is_asking = false;
    member.epoch = it.epoch;
    member.rank = it.place.rank;
    places_[it.epoch].push_back(it);
  }
  void require_end_of_old_world() {
    for (Worker each : world_.ranks) {
      const Process& it = process(each);
      require(it.was_heard || it.was_stopped || it.is_known_gone,
              "No rank is ever in two worlds: all ranks of a world have asked, ended or were given up before the next.",
              text(each));
    }
  }

  // All assignments of a new world have been given.
  void check_world() {
    if (next_.epoch <= world_.epoch) return;
    const std::string epoch = "epoch " + std::to_string(next_.epoch);
    require(static_cast<int>(next_.ranks.size()) == next_size_, "A world is assigned in one go.", epoch);
    check_state(epoch);
    check_places(epoch);
    world_ = next_;
    world_.step = static_cast<int>(process(world_.ranks.front()).step.value_or(0));
    world_.trains = true;
    for (Worker each : world_.ranks) {
      Process& it = process(each);
      if (it.lives && is_reachable(it) && !it.hangs) continue;
      break_world(each, silent);
    }
    in(dice_.up_to(Milliseconds(1500)), [this, number = world_.epoch] { commit(number); });
  }
  void check_state(const std::string& epoch) {
    int newcomers = 0;
    for (Worker each : next_.ranks) newcomers += process(each).step ? 0 : 1;
    const bool has_state = process(next_.ranks.front()).step.has_value();
    require(has_state || newcomers == next_size_, "Rank 0 has the state if any rank has.", epoch);
    require(has_state || !had_state_, "The training does not begin anew once it has a state.", epoch);
    const int told = places_.at(next_.epoch).front().newcomers;
    // One is told if ranks may differ in whether they need a sync.
    require(told == newcomers || (told == 1 && newcomers == 0), "A world is told how many of it have no state.", epoch);
    std::optional<Rank> before;
    for (Worker each : next_.ranks) {
      if (!ranks_before_.contains(each)) continue;
      if (host_before_ == process(each).host)
        require(!before || !process(each).step || *before < ranks_before_.at(each),
                "Survivors of a host keep their order.", epoch);
      before = ranks_before_.at(each);
      host_before_ = process(each).host;
    }
    ranks_before_.clear();
    for (Worker each : next_.ranks) ranks_before_[each] = process(each).rank;
  }
  void check_places(const std::string& epoch) {
    std::map<std::string, int> sizes;
    std::map<int, int> with;
    for (const auto& each : places_.at(next_.epoch)) {
      require(each.place.local_rank == sizes[process(each.place.worker).host]++,
              "Local ranks count the ranks of a host.", epoch);
      require(each.place.cross_rank == with[each.place.local_rank]++,
              "Cross ranks count the hosts that have a local rank.", epoch);
    }
    for (const auto& each : places_.at(next_.epoch)) {
      require(each.place.local_size == sizes[process(each.place.worker).host], "The local size is the host's.", epoch);
      require(each.place.cross_size == with[each.place.local_rank], "The cross size is that of the local rank.", epoch);
    }
  }

  void carry_out(const Membership::TakeOut& it) {
    write("out: " + it.host + (it.slot ? std::to_string(*it.slot) : "") + ": " + it.why);
    require(!it.why.empty(), "Who is taken out is told why.", it.host);
    require(!it.until || settings_.cooldown, "Without a cooldown a host stays out.", it.host);
    out_[{it.host, it.slot.value_or(-1)}] = it.until.value_or(Time::max());
  }
  bool is_out(const std::string& host, int slot) const {
    for (int each : {-1, slot}) {
      auto found = out_.find({host, each});
      if (found != out_.end() && now_ < found->second) return true;
    }
    return false;
  }

  void carry_out(const Membership::Tell& it) {
    const auto change = static_cast<unsigned>(it.change);
    write("tell " + text(it.worker) + " " + std::to_string(change));
    require(it.worker == world_.ranks.front(), "Rank 0 is told of other hosts.", text(it.worker));
    require((world_.told & change) == 0, "A world is told once of each kind of change.", text(it.worker));
    world_.told |= change;
    world_.was_told = true;
  }
  void carry_out(const Membership::Note& it) {
    write("note: " + it.text);
    require(!it.text.empty(), "A note has a text.", "");
  }

  void carry_out(const Membership::End& it) {
    using Reason = Membership::Reason;
    write("end " + std::to_string(static_cast<int>(it.reason)) + ": " + it.text);
    require((it.reason == Reason::finished) == it.text.empty(), "Every end but success has a text.", it.text);
    int ready = 0;
    bool has_state = false;
    for (const auto& [worker, each] : processes_) {
      if (!each.was_heard || is_out(each.host, each.slot) || is_leaving(each)) continue;
      ++ready;
      has_state = has_state || each.step.has_value();
    }
    if (it.reason == Reason::finished)
      for (Worker each : world_.ranks)
        require(process(each).has_finished, "The job succeeds if all ranks of the last world have finished.",
                text(each));
    if (it.reason == Reason::too_few)
      require(ready < (world_.epoch == 0 ? settings_.first : settings_.least),
              "A job with enough ranks does not end for too few.", std::to_string(ready));
    if (it.reason == Reason::all_failed && world_.epoch > 0)
      require(!has_state, "A job does not end as lost while a rank has the state.", "");
    if (it.reason == Reason::reset_limit)
      require(outcome_.worlds == *settings_.reset_limit + 1, "The limit of resets counts resets.",
              std::to_string(outcome_.worlds));
    finish(std::to_string(static_cast<int>(it.reason)));
  }
  void finish(std::string how) {
    outcome_.ending = std::move(how);
    has_ended_ = true;
  }

  Dice dice_;
  Time now_{};
  Membership::Settings settings_;
  std::map<std::string, Host> hosts_;
  std::map<std::string, int> found_;  // what the membership was told of them
  std::map<Worker, Process> processes_;
  std::priority_queue<Event> events_;
  std::uint64_t last_event_ = 0;
  std::optional<Time> wake_;
  World world_, next_;
  int next_size_ = 0;
  std::map<Epoch, std::vector<Membership::Assign>> places_;
  std::map<Worker, Rank> ranks_before_;
  std::string host_before_;
  int fault_ = -1;          // the step at which the program always fails
  bool had_state_ = false;  // some ask that was heard came with a state
  std::map<std::pair<std::string, int>, Time> out_;
  Outcome outcome_;
  bool has_ended_ = false;
  Membership membership_;
};

}  // namespace

Outcome simulate(std::uint64_t seed) {
  return Simulation(seed).run();
}

}  // namespace hvd::launcher::simulation
