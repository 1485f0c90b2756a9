#pragma once
// Resource sets of jsrun: they say which cores and GPUs the ranks get. Pure functions.
#include <string>
#include <vector>

#include "base/result.hpp"
#include "launcher/options/hosts.hpp"
#include "schedulers/scheduler.hpp"

namespace hvd::launcher {

// Returns the options -n -r -a -c -g -b -d. All sets of a step are equal. If the hosts get equal numbers of ranks, each
// host is one set, in which the ranks see all GPUs, as NCCL needs it. Otherwise each rank is one set, with its part of
// a host. `hosts` are some of the job's hosts; each has as many slots as it gets ranks.
Result<std::vector<std::string>> resource_sets(const std::vector<HostSlots>& hosts,
                                               const schedulers::Allocation& allocation);

// Returns the explicit resource file. It has a line for each rank, and each rank sees all GPUs of its host.
std::string explicit_resources(const std::vector<HostSlots>& hosts, const schedulers::Allocation& allocation,
                               int threads_per_core);

}  // namespace hvd::launcher
