#pragma once
// Resource sets of jsrun: which cores and GPUs the ranks get. Pure functions.
#include <string>
#include <vector>

#include "base/result.hpp"
#include "launcher/options/hosts.hpp"
#include "schedulers/scheduler.hpp"

namespace hvd::launcher {

// The options -n -r -a -c -g -b -d. All sets of a step are alike. If the hosts get equally many ranks, each is one set,
// in which the ranks see all GPUs, as NCCL wants it; else each rank is one, with its part of a host.
// `hosts` are some of the job's, each with as many slots as it gets ranks.
Result<std::vector<std::string>> resource_sets(const std::vector<HostSlots>& hosts,
                                               const schedulers::Allocation& allocation);

// The explicit resource file: a line for each rank, which sees all GPUs of its host.
std::string explicit_resources(const std::vector<HostSlots>& hosts, const schedulers::Allocation& allocation,
                               int threads_per_core);

}  // namespace hvd::launcher
