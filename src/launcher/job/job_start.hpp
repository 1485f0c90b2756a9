#pragma once
// The start of a job, from the first agent until every rank's StartRank has gone to its agent. It decides how the ranks
// meet, lets every agent prepare itself, and waits until all agents are ready.
#include <chrono>
#include <memory>
#include <string>

#include "base/deadline.hpp"
#include "base/settings/environment.hpp"
#include "launcher/console/console.hpp"
#include "launcher/console/input_relay.hpp"
#include "launcher/job/host_links.hpp"
#include "launcher/job/host_progress.hpp"
#include "launcher/job/host_watch.hpp"
#include "launcher/job/session_folder.hpp"
#include "launcher/job/wire_up.hpp"

namespace hvd::launcher {

class JobStart {
 public:
  // The parts of the job that its start works with. They must outlive this object.
  struct Parts {
    const JobOptions& options;
    const Environment& environment;
    SessionFolder& folder;
    Console& console;
    HostLinks& hosts;
    HostWatch& watch;
    InputRelay& input;
  };
  explicit JobStart(const Parts& parts) : parts_(parts) {}

  // Forks the agent of this machine and starts the first commands to other hosts. The caller has a single thread.
  Status begin(AgentSettings settings);
  // Starts the next commands, and all ranks once all agents are ready. Fails if an agent was not ready in time.
  Status step();
  bool has_started_ranks() const { return has_started_ranks_; }

  // What the ranks meet at. Null before begin(), under a site's launcher, and after close().
  WireUp* wire_up() const { return wire_up_.get(); }
  void close() { wire_up_.reset(); }
  // The time until step() has something to do.
  std::chrono::milliseconds left() const;

  // Starts the commands to the next hosts. step() does it until the ranks are started.
  Status reach_more();

 private:
  Status reach_hosts();
  Status open_wire_up();
  Status start_ranks();
  Status start_site_launcher();
  void greet(std::size_t at);
  void send_start_order(HostLink& host, StartRank order);
  Error not_ready_in_time() const;
  bool is_on_this_machine_alone() const { return parts_.watch.lifelines() == nullptr; }
  HostLink& host_of_first_rank() { return parts_.hosts[parts_.options.placements.front().host_index]; }

  Parts parts_;
  AgentSettings settings_;
  HostProgress progress_{Clock::now()};
  std::unique_ptr<WireUp> wire_up_;
  Deadline start_by_ = Deadline::never();
  bool has_started_ranks_ = false;
};

}  // namespace hvd::launcher
