#pragma once
// The agents of all hosts of a job: what horovodrun tells all of them, and what it knows about all of them.
#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/deadline.hpp"
#include "launcher/job/host_link.hpp"
#include "launcher/job/job_options.hpp"

namespace hvd::launcher {

class HostLinks {
 public:
  HostLinks() = default;
  explicit HostLinks(std::vector<HostLink> links) : links_(std::move(links)) {}
  // Forks the agent of this machine. The caller has a single thread, and holds nothing that the agent must not inherit.
  // The other hosts wait for their turn. Both arguments must outlive this object.
  Status reach(const JobOptions& options, const AgentSettings& settings);
  // Starts commands that lead to other hosts. Only some run at once, because more would slow each other and this
  // machine down. The next ones start when the first ones have answered, or take long. `greet` sends the first order.
  // The caller has a single thread.
  Status reach_more(const std::function<void(std::size_t at)>& greet);
  // One more host, for `slots` ranks, whose turn comes at the next reach_more(). For a job whose hosts come and go.
  std::size_t add(const HostPlan& plan, int slots);
  static constexpr std::size_t most_at_once = 64;
  static constexpr std::chrono::seconds long_time{5};  // a host that takes longer does not hold up the next ones

  auto begin() { return links_.begin(); }
  auto end() { return links_.end(); }
  auto begin() const { return links_.begin(); }
  auto end() const { return links_.end(); }
  HostLink& operator[](std::size_t at) { return links_[at]; }
  std::size_t size() const { return links_.size(); }
  bool are_all_ready() const;
  bool are_all_gone() const;
  // Fails if two of the hosts are the same machine. Call it when all hosts are ready.
  Status check_nodes() const;

  void add_to(std::vector<pollfd>& polled) const;
  using OnReport = std::function<void(HostLink&, const Report&)>;
  // Passes on what the agents report. HostLink::note() has seen each report before.
  void receive(const OnReport& on_report);
  void receive(HostLink& link, const OnReport& on_report);

  void forward(int signal);
  // Tells all agents to end everything. If a host has no agent yet, the command that leads there is ended.
  void order_end(int signal, std::chrono::milliseconds grace);
  void drop_unreached();  // marks hosts as gone to which no process leads (any more)
  void give_credit();     // agents may send as much output again as has come
  // Sends Ask to the hosts that are ready. They answer after they have reported all that they know.
  void ask_all();
  bool is_answer_awaited() const;
  // Dismisses the agents of the hosts on which nothing is left, and waits for them until the deadline. Then it kills
  // the processes that lead to the hosts.
  void dismiss(Deadline deadline);

 private:
  bool is_held_up() const;

  std::vector<HostLink> links_;
  std::vector<HostPlan> plans_;  // of the same hosts
  const JobOptions* options_ = nullptr;
  const AgentSettings* settings_ = nullptr;
  std::size_t next_ = 0;                    // the first host that may still be waiting
  std::vector<Clock::time_point> reached_;  // for each host before next_: when its command was started
};

}  // namespace hvd::launcher
