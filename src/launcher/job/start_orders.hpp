#pragma once
// What the agents are told so that a job starts: Prepare to each, then one StartRank for each rank.
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

// For this placement, which builds on `environment`.
Result<StartRank> start_order(const JobOptions& options, const Placement& placement, bool is_here,
                              const Environment& environment, WireUp& wire_up);

// Where the ranks start; empty if it is not known any more.
std::string working_folder();

}  // namespace hvd::launcher
