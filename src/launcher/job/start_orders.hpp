#pragma once
// The orders that start a job: Prepare to each agent, then one StartRank for each rank.
#include <cstddef>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "launcher/job/host_link.hpp"
#include "launcher/job/job_options.hpp"
#include "launcher/job/wire_up.hpp"
#include "launcher/wire/lifeline.hpp"

namespace hvd::launcher {

// For the host at this place of options.hosts. `lifelines` are there if any host is another machine.
Prepare prepare_order(const JobOptions& options, const HostLink& host, std::size_t at, const Lifelines* lifelines);

// The order for the rank of this placement; its variables are added to `environment`.
Result<StartRank> start_order(const JobOptions& options, const Placement& placement, bool is_here,
                              const Environment& environment, WireUp& wire_up);

// The folder in which the ranks start; empty if it does not exist any more.
std::string working_folder();

}  // namespace hvd::launcher
