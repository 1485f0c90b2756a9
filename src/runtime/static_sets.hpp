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

// Fails (HVD2111) unless these are ranks of the world, each named once, and at least one. They are in ascending order.
Status check_ranks_of_set(const std::vector<Rank>& ascending, int world_size);

// Returns the listed sets, each with ascending ranks. Repeated sets and sets of all ranks are left out. Fails if a rank
// does not exist or is named twice in a set.
Result<std::vector<std::vector<Rank>>> distinct_sets(const std::vector<std::vector<Rank>>& listed, int world_size);

// Adds the sets of the ranks' communicators, in ascending order, and fills in the numbers of this rank's sets.
// Collective over the world.
Status add_sets_of_communicators(Runtime& runtime, const Environment& environment, StaticSets& sets);

}  // namespace hvd::runtime
