#pragma once
// The plan of a job: who starts which ranks on which hosts. A target (targets/) makes the plan, job.hpp carries it out.
#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/settings/config.hpp"
#include "launcher/console/output.hpp"
#include "launcher/elastic/discovery.hpp"
#include "launcher/elastic/membership.hpp"
#include "launcher/job/site_launcher.hpp"
#include "launcher/options/hosts.hpp"

namespace hvd::launcher {

struct HostPlan {
  std::string name;
  std::vector<std::string> reach;  // a command that runs its last argument in a shell there; empty: this machine
  bool takes_words = false;        // the words that start an agent follow one by one, and no shell reads them
  std::string trial{};             // a command that shows the user whether the host can be reached; empty: by ssh
};

// For jobs with ranks on other machines.
struct NetworkOptions {
  std::vector<std::string> interfaces;  // the interfaces over which horovodrun is reached; empty: all
  PortRange ports;
  std::chrono::milliseconds start_timeout{30000};     // the time by which every host must be ready
  std::chrono::milliseconds lifeline_patience{5000};  // a host that is silent for longer counts as lost
  std::string remote_program;                         // the path of horovodrun on the other hosts
};

// For jobs whose ranks come and go (elastic/membership.hpp).
struct ElasticOptions {
  Membership::Settings membership;
  std::vector<HostSlots> hosts;  // their slots, by the names that the user gave; the same places as JobOptions::hosts.
                                 // Empty if they are discovered: then JobOptions::hosts has this machine alone
  std::optional<Discovery::Script> script{};
  std::function<HostPlan(const std::string& host)> plan_of_host{};  // for hosts that are discovered, or come back
  // Asks the scheduler, on a thread of its own, whether its job has ended. Returns a text for the user, empty if
  // not. Called at the start, and again and again while hosts are lost.
  std::function<std::string()> ask_for_end_of_job_around{};
};

struct JobOptions {
  std::string program;               // the program that is executed; a name without a slash is looked for along PATH on
                                     // every host
  std::vector<std::string> command;  // the ranks' command, as the user gave it
  std::vector<HostPlan> hosts;
  std::vector<Placement> placements;  // the places of the ranks on these hosts
  NetworkOptions network;
  std::optional<ElasticOptions> elastic;         // the placements are slots then, and not ranks
  std::optional<SiteLauncher> site;              // starts the ranks; the only placement is this launcher's own
  std::map<std::string, std::string> variables;  // variables that flags set for the ranks
  PrinterOptions printer;
  bool verbose = false;
  std::chrono::milliseconds grace{5000};  // time between the first signal and SIGKILL

  bool is_on_several_machines() const {
    return std::any_of(hosts.begin(), hosts.end(), [](const HostPlan& host) { return !host.reach.empty(); });
  }
};

}  // namespace hvd::launcher
