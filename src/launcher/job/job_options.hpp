#pragma once
// The plan of a job: who starts which ranks where. A target (targets/) makes it, job.hpp carries it out.
#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "launcher/console/output.hpp"
#include "launcher/job/site_launcher.hpp"
#include "launcher/options/hosts.hpp"

namespace hvd::launcher {

struct HostPlan {
  std::string name;
  std::vector<std::string> reach;  // command that runs a shell command, its last argument, there; empty: this machine
  bool takes_words = false;        // the words of a command come after it, and no shell reads them
};

// For jobs with ranks on other machines.
struct NetworkOptions {
  std::vector<std::string> interfaces;  // that horovodrun is reached over; empty: all
  PortRange ports;
  std::chrono::milliseconds start_timeout{30000};     // by then every host must be ready
  std::chrono::milliseconds lifeline_patience{5000};  // after which a silent host counts as lost
  std::string remote_program;                         // where horovodrun lies on the other hosts
};

struct JobOptions {
  std::string program;               // to execute; without a slash every host looks for it along PATH
  std::vector<std::string> command;  // as the user gave it
  std::vector<HostPlan> hosts;
  std::vector<Placement> placements;  // on these hosts
  NetworkOptions network;
  std::optional<SiteLauncher> site;              // it starts the ranks; the only placement is its own
  std::map<std::string, std::string> variables;  // that flags set for the ranks
  PrinterOptions printer;
  bool verbose = false;
  std::chrono::milliseconds grace{5000};  // between the first signal and SIGKILL

  bool is_on_several_machines() const {
    return std::any_of(hosts.begin(), hosts.end(), [](const HostPlan& host) { return !host.reach.empty(); });
  }
};

}  // namespace hvd::launcher
