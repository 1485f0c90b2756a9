#pragma once
// Decides which processes take part in an elastic job: facts go in, the next step comes out. A pure object of the job's
// thread. It knows no process, socket or thread. Its clock and its random numbers are passed in, so every order of
// facts can be tested.
//
// A worker is one process on one slot of a host. No two workers have the same number, so a late message from an
// older process of a slot is recognised. A world is the ranks of one epoch. Only this object gives out identities, and
// each epoch is given once, so nobody is in two worlds.
//
//  1. Slots of the hosts that were found get workers: up to `most`, and `spares` more. A worker that asks for the first
//     time waits until it gets a rank: in the first world, in the place of a rank that was lost, or as `added`.
//  2. The first world begins when all workers that were started have asked and there are `first` of them. Once a worker
//     has failed, `least` are enough.
//  3. A rank that fails takes its host out while other hosts hold `least` live workers and the training's state; else
//     only its slot is lost. A lost host is always out. A host or slot that is out returns after its cooldown; without
//     a cooldown it never returns. A failed slot without a cooldown gets a replacement at once. It goes out at its
//     third failure in a row if the training made no progress in the worlds of the replacements.
//  4. When a rank of the world asks again, or has failed, the world is over. All of its ranks must ask or end. Then the
//     next world begins at once, with the ranks that are left and the workers that wait. It waits for others only while
//     there are fewer than `least`.
//  5. Workers that can be added may wait, and ranks must leave when discovery no longer finds their slot. The first
//     rank is told of either, once for each world and kind of change. It makes all ranks ask at the same commit.
//  6. Survivors keep their order. Ranks go host by host, and hosts with survivors come first: rank 0 has the state.
//  7. The job ends when all ranks have finished; when one has finished and others have not; when no rank that has the
//     state is left; after `reset_limit` resets; when the same first failure happens at the same step three times; when
//     there are fewer than `least` and nothing can change that within `timeout`.
//  8. Every wait has a limit, and the user is told again and again for which workers or hosts the job waits. A worker
//     that does not ask in time is stopped and counts as failed.
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/deadline.hpp"
#include "base/ids.hpp"
#include "launcher/elastic/host_pool.hpp"
#include "launcher/elastic/ranking.hpp"
#include "launcher/options/hosts.hpp"

namespace hvd::launcher {

class Membership {
 public:
  using Time = Clock::time_point;
  // How often the same first failure may happen at the same step; then the job ends.
  static constexpr int most_equal_failures = 3;
  // How often a slot may fail in a row, if there is no cooldown and the training does not come further in the worlds of
  // the processes that replace the first one.
  static constexpr int most_failures_of_slot = 3;
  // How long the first worker that can be added waits for others that were started, so that one reset adds them all.
  static constexpr auto patience_for_newcomers = std::chrono::seconds(10);

  static constexpr int spares_on_all_slots = std::numeric_limits<int>::max();  // --spares auto

  struct Settings {
    int first = 1;                               // -np: how many ranks the first world waits for
    int least = 1;                               // --min-np
    int most = std::numeric_limits<int>::max();  // --max-np
    int spares = 0;                              // --spares
    bool are_hosts_fixed = false;                // no discovery: hosts that are lost are not replaced by others
    std::chrono::milliseconds timeout{600'000};  // --elastic-timeout
    std::chrono::milliseconds report_every{0};   // how often a wait is reported; 0: never
    std::optional<int> reset_limit;              // --reset-limit
    std::optional<CooldownRange> cooldown;       // --blacklist-cooldown-range
    std::function<Time()> now = Clock::now;
    std::function<double()> draw;  // a random number in [0, 1)
  };
  explicit Membership(Settings settings);

  // ---- facts
  // What discovery has found, or the fixed hosts: all of them, in order. Called again only if something has changed or
  // not, as the caller likes.
  void hosts_found(const std::vector<HostSlots>& hosts);
  // Before the first hosts were found this ends the job; later it is only told to the user.
  void discovery_failed(const std::string& why);
  enum class Cause : std::uint8_t {
    first,          // the process has had no rank yet
    failed,         // its round failed: a rank was lost, or an operation failed on all ranks
    hosts_updated,  // it was told of other hosts, at a commit
  };
  struct Ask {
    Cause cause = Cause::first;
    // How far the training has come, for example the number of commits. Empty: the process has no state of it.
    std::optional<std::int64_t> step{};
    bool keeps = false;  // it can write a checkpoint
  };
  // The worker waits for an assignment. It may ask again while it waits (after its connection was cut).
  void asks(Worker worker, const Ask& ask);

  struct Ending {
    bool is_failure = false;  // not: exit code 0, or the code that asks for another run
    int code = 0;             // exit code, or 128 + signal; equal failures have equal codes
    std::string text{};       // "exited with code 7", "was killed by signal 9 (SIGKILL)"
  };
  // The worker's process has ended, or could not be started. The end of a worker that was stopped is no failure.
  void ended(Worker worker, const Ending& ending);
  // The host is not reached any more. Its workers are never spoken to again, even if they come back.
  void host_lost(const std::string& host, const std::string& why);

  // ---- what to do; views are valid until the next call
  struct GoOn {};     // all is well until the next fact
  struct WaitUntil {  // go on, and call next() again at that time at the latest
    Time when;
  };
  struct Start {  // start a process on this slot
    Worker worker;
    std::string host;
    int slot = 0;  // index in the host: the process keeps this slot's processors and GPU, whatever its local rank is
  };
  // End this process: it waits no longer (if it asks, the answer is `why`), and it gets SIGTERM, later SIGKILL.
  struct Stop {
    Worker worker;
    std::string why;
  };
  // Answer this worker, which belongs to no process that counts, that it has no part in the job.
  struct Refuse {
    Worker worker;
    std::string why;
  };
  struct Assign {  // answer this worker
    Epoch epoch = 0;
    int size = 1;
    WorldPlace place;  // which worker, and its ranks
    // So many ranks of this world have no state. At least 1 if ranks may differ in whether they need a sync: then all
    // need it.
    int newcomers = 0;
  };
  // A host, or one slot of it, gets no more ranks. For the summary of the job.
  struct TakeOut {
    std::string host;
    std::optional<int> slot;    // empty: the whole host
    std::optional<Time> until;  // empty: for the rest of the job
    std::string why;
  };
  enum class Change : std::uint8_t { removed = 1, added = 2, mixed = 3 };  // the numbers of HostUpdateResult
  struct Tell {  // tell the first rank that hosts have changed
    Worker worker;
    Change change = Change::added;
  };
  struct Note {  // one line for the user
    std::string text;
  };
  enum class Reason : std::uint8_t {
    finished,        // all ranks have finished: the job has succeeded
    finished_early,  // a rank has finished, others need it
    all_failed,      // no rank that has the state is left
    equal_failures,  // the same first failure at the same step, three times
    reset_limit,
    too_few,       // fewer than `least`
    no_discovery,  // the first discovery has failed
  };
  struct End {
    Reason reason = Reason::finished;
    std::string text;                     // what has happened and what to do; empty for finished
    std::optional<Worker> first_failure;  // of the world that was the last one, or before the first one
    // A rank that waits for an assignment, has the state and can write a checkpoint of it: of those that have come
    // furthest the lowest.
    std::optional<Worker> keeper;
  };
  using Step = std::variant<GoOn, WaitUntil, Start, Stop, Refuse, Assign, TakeOut, Tell, Note, End>;
  // Returns the next step. It is called again until it returns GoOn, WaitUntil or End. Each other step must be carried
  // out before the next call. After End every call returns End.
  Step next();

  // ---- for reports and tests
  Epoch epoch() const { return epoch_; }  // of the last world; 0 before the first one
  int resets() const { return resets_; }
  // The ranks of the last world, by rank, also those that have ended.
  const std::vector<Worker>& world() const { return world_; }
  // Whom the job waits for, each a piece of text: "rank 2 (host b, slot 1) to end its round". Empty if a world trains.
  std::vector<std::string> waits_for() const;
  // "rank 2 (host b, slot 1)", "a spare (host b, slot 3)"
  std::string describe(Worker worker) const;

 private:
  enum class Phase : std::uint8_t {
    starting,  // it has not asked yet
    waiting,   // it has asked
    in_world,  // it has its assignment
    finished,  // it was in the world and has ended without a failure
    stopping,  // it was told to end
    gone,      // it has ended, or is not reached any more
  };
  struct Member {
    HostPool::Slot slot;
    Phase phase = Phase::starting;
    Time since{};  // when it was started, or asked for the first time
    std::optional<std::int64_t> step{};
    bool keeps = false;
    std::optional<Rank> rank{};  // in the last world; empty if it is not in it
    bool has_advanced = false;   // the training has come further in an earlier world of it
    bool has_process() const { return phase == Phase::starting || phase == Phase::waiting || phase == Phase::in_world; }
  };
  struct Failure {
    Worker worker;
    HostPool::Slot slot;
    int code = 0;
    std::string text;  // with the description of the worker
    bool is_host_lost = false;
    bool is_judged = false;  // whether its host or its slot is out was decided
  };
  struct Mark {  // of a failure, to find equal ones
    int code = 0;
    std::optional<std::int64_t> step;
    friend bool operator==(const Mark&, const Mark&) = default;
  };

  // Each of these looks at all facts and queues steps.
  void decide(Time now);
  void stop_late_workers(Time now);
  void stop_workers_without_slot(Time now);
  void gather(Time now);
  void gather_first(Time now);
  bool judge_failures(Time now);
  bool is_host_dispensable(const Failure& failure, Time now) const;
  bool has_survivor() const;
  bool may_reset();
  bool is_failure_new();
  bool is_begun_anew() const;
  bool is_sync_doubtful() const;
  void begin_world_if_enough(Time now);
  void begin_world(Time now);
  void start_workers(Time now);
  void note_missing_spares(std::size_t slots);
  void notify_first_rank(Time now);
  void report_wait(Time now);
  Step wait(Time now) const;

  void begin_gathering();
  struct HowFailed {
    int code = 0;
    std::string how;
    bool is_host_lost = false;
    Phase phase = Phase::gone;  // the worker's from now on
  };
  void fail(Worker worker, const HowFailed& it);
  void fail_without_rank(Worker worker, const std::string& how, Phase phase);
  void take_out_host(const std::string& host, const std::string& why);
  void take_out_slot(const HostPool::Slot& slot, const std::string& why);
  void lose_slot(const Member& member, const std::string& why);
  void stop(Worker worker, const std::string& why);
  void note(std::string text);
  void end(Reason reason, std::string text);

  bool is_usable(const Member& member, Time now) const {
    return pool_.may_use(member.slot.host, member.slot.index, now);
  }
  std::size_t count(Phase phase) const;
  std::size_t count_ranks(Phase phase) const;  // of the last world
  std::vector<Candidate> candidates(Time now) const;
  std::optional<Time> first_newcomer_since(Time now) const;
  int needed() const { return epoch_ == 0 && !has_lost_early_ ? settings_.first : settings_.least; }
  Time gathering_ends() const { return since_ + settings_.timeout; }
  std::optional<Time> report_due() const;
  std::string text_about_failures() const;
  std::string text_about_finished() const;
  std::string text_about_world(std::size_t size) const;

  Settings settings_;
  HostPool pool_;
  std::map<Worker, Member> workers_;
  std::map<HostPool::Slot, int> slot_failures_;  // in a row
  std::deque<Step> steps_;
  std::optional<End> end_;
  std::string why_not_found_;  // what discovery has failed by, as the user was told

  bool has_found_hosts_ = false;
  bool has_started_ = false;       // the first workers
  bool has_failed_early_ = false;  // a worker has ended before the first world
  bool has_lost_early_ = false;    // the same, or its host was lost
  std::optional<Worker> first_early_failure_;
  std::optional<std::int64_t> step_;  // the greatest that was told; empty: no worker has had the state of the training

  Epoch epoch_ = 0;
  std::vector<Worker> world_;
  std::optional<std::int64_t> first_step_;  // how far the training had come when this world began
  unsigned told_ = 0;                       // the changes that the first rank of this world was told

  bool is_gathering_ = true;          // no world trains
  Time since_;                        // when that began
  Time reported_;                     // when the wait was reported last, or began
  std::vector<Failure> failures_;     // of the last world, in order
  bool has_failed_round_ = false;     // a rank of it has asked because its round failed
  std::optional<Epoch> interrupted_;  // the last world of which a rank has asked because it was told of other hosts
  bool is_reset_counted_ = false;
  int resets_ = 0;
  std::optional<Mark> mark_;  // of the last failure
  int equal_failures_ = 0;
};

}  // namespace hvd::launcher
