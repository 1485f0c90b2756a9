#pragma once
// The agents of all hosts of a job: what is said to all of them, and what is known of all.
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
  // Forks the agent of this machine. The caller has a single thread, and nothing that the agent could inherit. The
  // other hosts wait for their turn. Both arguments outlive this.
  Status reach(const JobOptions& options, const AgentSettings& settings);
  // Starts the commands that lead to other hosts: not all at once, for they would starve each other, and this
  // machine. The next ones start as the first ones answer, or take long. `greet` says the first word. The caller has
  // a single thread.
  Status reach_more(const std::function<void(std::size_t at)>& greet);
  static constexpr std::size_t most_at_once = 64;
  static constexpr std::chrono::seconds long_time{5};  // after which who has not answered holds up nobody

  auto begin() { return links_.begin(); }
  auto end() { return links_.end(); }
  auto begin() const { return links_.begin(); }
  auto end() const { return links_.end(); }
  HostLink& operator[](std::size_t at) { return links_[at]; }
  std::size_t size() const { return links_.size(); }
  bool are_all_ready() const;
  bool are_all_gone() const;
  // Fails if two of the hosts, which are ready, are one and the same.
  Status check_nodes() const;

  void add_to(std::vector<pollfd>& polled) const;
  using Hear = std::function<void(HostLink&, const Report&)>;
  // Hands over what the agents say. What it tells about the link itself is in the link already.
  void receive(const Hear& hear);
  void receive(HostLink& link, const Hear& hear);

  void forward(int signal);
  // Those that have agents are told to end all; where nobody is yet, the way there ends.
  void order_end(int signal, std::chrono::milliseconds grace);
  void drop_unreached();  // those to which nothing leads (any more)
  void give_credit();     // for all output that was received
  // Asks the hosts that are ready, to be answered after all that they know by now.
  void ask_all();
  bool is_answer_awaited() const;
  // Those on which nothing is left may go, and are waited for until the deadline; then what leads there is killed.
  void dismiss(Deadline deadline);

 private:
  bool is_held_up() const;

  std::vector<HostLink> links_;
  const JobOptions* options_ = nullptr;
  const AgentSettings* settings_ = nullptr;
  std::size_t next_ = 0;                    // before it nobody waits
  std::vector<Clock::time_point> reached_;  // of those before it, since when
};

}  // namespace hvd::launcher
