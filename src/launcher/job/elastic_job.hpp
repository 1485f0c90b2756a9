#pragma once
// Carries out what the membership of an elastic job decides (elastic/membership.hpp): starts and stops processes, gives
// out places, tells of hosts. It hands the membership the facts. In such a job a Rank of the messages to and from the
// agents is the number of a process, which never changes and is never used again.
#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/settings/environment.hpp"
#include "launcher/console/console.hpp"
#include "launcher/elastic/membership.hpp"
#include "launcher/job/first_failure.hpp"
#include "launcher/job/host_links.hpp"
#include "launcher/job/job_options.hpp"
#include "launcher/job/question.hpp"
#include "launcher/job/rank_table.hpp"
#include "launcher/job/wire_up.hpp"

namespace hvd::launcher {

class ElasticJob {
 public:
  struct Parts {
    const JobOptions& options;
    const Environment& environment;
    Console& console;
    HostLinks& hosts;
    RankTable& processes;
  };
  explicit ElasticJob(const Parts& parts);

  void begin(WireUp& wire_up);  // the agents are ready; the first step() starts processes
  // What the agents have reported. RankTable::start() and end() were called before.
  void handle(const NotStarted& report);
  void handle(const Exited& report);
  void handle(const HostLink& host, const Ready& report);
  void lose(HostLink& host, const std::string& why);

  // Does what is due. Returns the end of the job once it is decided, once.
  struct End {
    std::optional<FirstFailure> failure;  // of the process by which the job failed
    int process = -1;                     // its number
    bool is_failure = false;
    std::string text;  // for the user; may be empty
  };
  std::optional<End> step();
  // While the job ends: a process that waits for a place would not notice SIGTERM.
  void refuse_asks();
  std::string name_of(Rank number) const;  // "rank 2", as the ranks are numbered now
  std::chrono::milliseconds left() const;  // time until the next step() that is due by itself
  void add_to(std::vector<pollfd>& polled) const;

 private:
  struct Process {
    std::size_t host = 0;  // place in HostLinks
    int rank = -1;         // of the generation; -1 before it has a place
    std::optional<FirstFailure> failure;
  };
  // Where the slots of a host are, which users and discovery know by its name.
  struct Place {
    std::size_t link = 0;  // place in HostLinks
    int first_slot = 0;    // this machine may have several names; their slots follow one another
    int slots = 0;
    Clock::time_point ready_by{};
  };
  // The job ends because it has too few ranks. Before that, this process writes a checkpoint of its last commit.
  struct Keeping {
    Membership::End end;
    Rank process;
    Clock::time_point until;
    bool has_saved = false;
  };
  struct PendingStart {  // of a process on a host that is not ready yet
    std::size_t link;
    StartRank order;
  };
  bool is_going_on() const { return wire_up_ != nullptr && !keeping_ && !has_ended_; }
  static Rank number_of(Worker worker) { return Rank{static_cast<std::int32_t>(worker.value)}; }
  Process* find(Rank number);
  Place& place_of(const std::string& host);
  void take_place(const HostSlots& host);
  void send_pending();
  void look_for_hosts();
  void give_up_unready();
  void state_asks();
  void end(const Rank& number, std::optional<FirstFailure> failure, const Membership::Ending& ending);
  void carry_out(const Membership::Start& step);
  void carry_out(const Membership::Stop& step);
  void carry_out(const Membership::Assign& step);
  void carry_out(const Membership::Tell& step);
  bool begin_keeping(const Membership::End& step);
  std::optional<End> step_keeping();
  std::optional<End> end_with_job_around();
  End end_of(const Membership::End& step);
  void leave_out_newcomers();  // processes without a rank: their ends are nobody's failure
  Result<StartRank> order_for(const Membership::Start& step, const Place& place);
  void kill_overdue();

  Parts parts_;
  WireUp* wire_up_ = nullptr;
  Discovery discovery_;
  Membership membership_;
  std::map<Rank, Process> processes_;
  std::map<std::string, Place> places_;
  int slots_here_ = 0;  // of all names of this machine
  std::vector<PendingStart> pending_;
  std::set<std::size_t> lost_links_;
  std::map<Rank, Clock::time_point> kill_at_;  // processes that were told to end
  std::optional<Clock::time_point> wake_at_;
  std::optional<Keeping> keeping_;
  // Asked while hosts are lost: a scheduler that ends its job may end only the processes on other hosts.
  Question job_around_;
  std::optional<Clock::time_point> ask_again_at_;
  Epoch epoch_ = 0;
  bool has_ended_ = false;
  std::optional<Clock::time_point> refuse_at_;  // set when the job ends
  bool has_refused_ = false;                    // all that waited then
};

}  // namespace hvd::launcher
