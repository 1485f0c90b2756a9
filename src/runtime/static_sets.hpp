#pragma once
// The process sets that a program names when it starts.
#include <string>
#include <vector>

#include "base/settings/environment.hpp"
#include "runtime/runtime.hpp"
#include "runtime/session.hpp"

namespace hvd::runtime {

// Returns a line NAME=value for the comparison of all ranks' knobs. Empty if no sets are listed.
std::string knob_of(const StaticSets& sets);

// Returns the listed sets, each with ascending ranks. Repeated sets and sets of all ranks are left out. Fails if a rank
// does not exist or is named twice in a set.
Result<std::vector<std::vector<Rank>>> distinct_sets(const std::vector<std::vector<Rank>>& listed, int world_size);

// Adds the sets of the ranks' communicators, in ascending order, and fills in the numbers of this rank's sets.
// Collective over the world.
Status add_sets_of_communicators(Runtime& runtime, const Environment& environment, StaticSets& sets);

}  // namespace hvd::runtime
