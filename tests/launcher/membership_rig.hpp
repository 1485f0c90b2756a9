#pragma once
// A membership with a clock that the test sets.
#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/overloaded.hpp"
#include "launcher/elastic/membership.hpp"

namespace hvd::launcher::elastic_table {

using std::chrono::seconds;
using Cause = Membership::Cause;
using Words = std::vector<std::string>;

// A job with a clock that the test sets. Hosts are letters, workers are numbers in the order of their starts. Steps are
// written down as words; notes are kept apart.
class Rig {
 public:
  static Membership::Settings settings(int first, int least, int most = std::numeric_limits<int>::max()) {
    Membership::Settings it;
    it.first = first;
    it.least = least;
    it.most = most;
    it.timeout = seconds(600);
    return it;
  }
  explicit Rig(Membership::Settings it) : membership(complete(std::move(it))) {}

  // Returns all steps that are to be done now, in order.
  Words steps() {
    Words said;
    wait.reset();
    for (;;) {
      Membership::Step step = membership.next();
      if (std::holds_alternative<Membership::GoOn>(step)) return said;
      if (auto* until = std::get_if<Membership::WaitUntil>(&step)) {
        wait = std::chrono::duration_cast<seconds>(until->when - now);
        return said;
      }
      if (auto* note = std::get_if<Membership::Note>(&step)) {
        notes.push_back(note->text);
        continue;
      }
      said.push_back(words(step));
      if (auto* end = std::get_if<Membership::End>(&step)) {
        ending = *end;
        return said;
      }
    }
  }

  void find(const std::vector<HostSlots>& hosts) { membership.hosts_found(hosts); }
  void ask(std::initializer_list<int> workers, Cause cause = Cause::first, std::optional<std::int64_t> step = {}) {
    for (int each : workers) membership.asks(worker(each), {cause, step, step.has_value()});
  }
  void fail(int it, int code = 1) { membership.ended(worker(it), {true, code, "exited with " + std::to_string(code)}); }
  void finish(std::initializer_list<int> workers) {
    for (int each : workers) membership.ended(worker(each), {});
  }
  void pass(seconds time) { now += time; }
  // The first world: all workers that the job has started ask, and get their ranks.
  void begin(const std::vector<HostSlots>& hosts) {
    find(hosts);
    steps();
    for (int each : started) ask({each});
    steps();
    assigned.clear();
    notes.clear();
  }

  Membership::Time now = Membership::Time{} + std::chrono::hours(1);
  double drawn = 0;
  std::optional<seconds> wait;  // the time that the last steps() has left for
  Words notes;
  std::optional<Membership::End> ending;
  std::vector<int> started, assigned;  // in the order of the steps
  int newcomers = 0;                   // of the last world
  Membership membership;

  // The first worker is 1 in the words of the table.
  static Worker worker(int number) { return Worker{static_cast<std::uint64_t>(number - 1)}; }
  static int number_of(Worker worker) { return static_cast<int>(worker.value) + 1; }

 private:
  Membership::Settings complete(Membership::Settings it) {
    it.now = [this] { return now; };
    it.draw = [this] { return drawn; };
    return it;
  }

  static std::string number(Worker worker) { return std::to_string(number_of(worker)); }

  std::string words(const Membership::Step& step) {
    return std::visit(
        Overloaded{
            [](const Membership::GoOn&) { return std::string("go on"); },
            [](const Membership::WaitUntil&) { return std::string("wait"); },
            [](const Membership::Note&) { return std::string("note"); },
            [&](const Membership::Start& it) {
              started.push_back(number_of(it.worker));
              return "start " + number(it.worker) + " on " + it.host + std::to_string(it.slot);
            },
            [](const Membership::Stop& it) { return "stop " + number(it.worker); },
            [](const Membership::Refuse& it) { return "refuse " + number(it.worker); },
            [&](const Membership::Assign& it) {
              assigned.push_back(number_of(it.place.worker));
              newcomers = it.newcomers;
              return number(it.place.worker) + " is " + std::to_string(it.place.rank.value) + " of " +
                     std::to_string(it.size) + " in " + std::to_string(it.epoch);
            },
            [&](const Membership::TakeOut& it) {
              std::string text = "out " + it.host + (it.slot ? std::to_string(*it.slot) : "");
              if (it.until)
                text += " for " + std::to_string(std::chrono::duration<double>(*it.until - now).count()).substr(0, 4);
              return text;
            },
            [](const Membership::Tell& it) {
              constexpr const char* names[] = {"nothing", "removed", "added", "mixed"};
              return "tell " + number(it.worker) + " " + names[static_cast<int>(it.change)];
            },
            [](const Membership::End& it) {
              constexpr const char* names[] = {"finished",    "finished early", "all failed",  "equal failures",
                                               "reset limit", "too few",        "no discovery"};
              return "end: " + std::string(names[static_cast<int>(it.reason)]);
            },
        },
        step);
  }
};

inline bool has(const Words& words, const std::string& word) {
  return std::ranges::any_of(words, [&](const std::string& each) { return each.find(word) != std::string::npos; });
}

}  // namespace hvd::launcher::elastic_table
