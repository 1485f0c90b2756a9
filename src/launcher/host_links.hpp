#pragma once
// The agents of all hosts of a job: what is said to all of them, and what is known of all.
#include <poll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/deadline.hpp"
#include "launcher/host_link.hpp"
#include "launcher/job_options.hpp"

namespace hvd::launcher {

class HostLinks {
 public:
  HostLinks() = default;
  explicit HostLinks(std::vector<HostLink> links) : links_(std::move(links)) {}
  // Forks the agent of this machine, and one command for each other host. Where it fails some may have been reached.
  // The caller has a single thread, and nothing that the agent could inherit.
  Status reach(const JobOptions& options, const AgentSettings& settings);

  auto begin() { return links_.begin(); }
  auto end() { return links_.end(); }
  HostLink& operator[](std::size_t at) { return links_[at]; }
  std::size_t size() const { return links_.size(); }
  bool are_all_ready() const;
  bool are_all_gone() const;
  // Fails if two of the hosts, which are ready, are one and the same.
  Status check_nodes() const;

  void add_to(std::vector<pollfd>& polled) const;
  using Hear = std::function<void(HostLink&, const Message&)>;
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
  std::vector<HostLink> links_;
};

}  // namespace hvd::launcher
