#pragma once
// Process sets that a program names when it starts.
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "runtime/runtime.hpp"
#include "runtime/session.hpp"

namespace hvd::runtime {

// A line NAME=value that must be equal on all ranks; empty if no sets are listed.
std::string knob_of(const StaticSets& sets);

// The listed sets, ascending, without those that exist already and those of all ranks. Fails on ranks that do not
// exist, and on ranks that are named twice in a set.
Result<std::vector<std::vector<Rank>>> distinct_sets(const std::vector<std::vector<Rank>>& listed, int world_size);

// Collective over the world: adds the sets of the ranks' communicators, in ascending order, and fills in the numbers of
// this rank's sets.
Status add_sets_of_communicators(Runtime& runtime, const Environment& environment, StaticSets& sets);

}  // namespace hvd::runtime
