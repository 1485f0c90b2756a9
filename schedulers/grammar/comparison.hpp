#pragma once
// A job says most things about itself more than once. What does not agree is noted, for `horovodrun --explain`: some
// program has changed a variable, or it belongs to another job.
#include <string>

#include "base/settings/environment.hpp"
#include "schedulers/scheduler.hpp"

namespace hvd::schedulers {

// Notes a variable that is set and is not `expected`: "SLURM_NNODES=3, but SLURM_JOB_NODELIST has 2 hosts". `why` has
// the words behind "but".
void compare_number(Allocation& found, const Environment& environment, const std::string& variable, int expected,
                    const std::string& why);
// Notes the first host that `others`, from `source`, have with another number of slots, or do not have.
void compare_hosts(Allocation& found, const Result<std::vector<Host>>& others, const std::string& source);

int slots_of(const std::vector<Host>& hosts);

}  // namespace hvd::schedulers
