#pragma once
// Where ranks can be started, and by whom: a target makes a plan of a job out of what the user asked for. Adding one is
// adding a file here and a row in target.cpp.
#include <vector>

#include "base/environment.hpp"
#include "base/result.hpp"
#include "launcher/flags.hpp"
#include "launcher/hosts.hpp"
#include "launcher/job.hpp"

namespace hvd::launcher {

struct Request {
  const Flags& flags;
  const Environment& environment;
  int ranks = 1;
  std::vector<HostSlots> hosts;  // empty: none were named
};

// Hosts (and placements, network) of the first target that fits.
Result<JobOptions> plan_job(const Request& request);

// This machine, and others over ssh, with agents of ours.
Result<JobOptions> plan_with_agents(const Request& request);

}  // namespace hvd::launcher
