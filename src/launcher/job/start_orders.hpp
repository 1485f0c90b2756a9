#pragma once
// The orders that start a job: Prepare to each agent, then one StartRank for each rank.
#include <cstddef>
#include <string>
#include <vector>

#include "base/settings/environment.hpp"
#include "launcher/job/host_link.hpp"
#include "launcher/job/job_options.hpp"
#include "launcher/job/wire_up.hpp"
#include "launcher/wire/lifeline.hpp"

namespace hvd::launcher {

// Makes the order for the host at place `at` of options.hosts. `lifelines` is not null if any host is another machine.
Prepare prepare_order(const JobOptions& options, const HostLink& host, std::size_t at, const Lifelines* lifelines);

// Makes the order for the rank of this placement. Its variables are added to `environment`.
Result<StartRank> start_order(const JobOptions& options, const Placement& placement, bool is_here,
                              const Environment& environment, WireUp& wire_up);

// Returns the folder in which the ranks start; empty if the folder does not exist any more.
std::string working_folder();

}  // namespace hvd::launcher
