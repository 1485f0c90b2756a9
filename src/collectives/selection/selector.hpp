#pragma once
// Chooses the algorithm of a collective over a team: the cheapest one that always gives the same bits.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/settings/config.hpp"
#include "collectives/algorithm.hpp"

namespace hvd::collectives {

// The rules, in this order:
//  1. If the user asked for an algorithm (HOROVOD_ALGORITHM, "allreduce=ring,broadcast=tree"), it is taken wherever it
//     is possible.
//  2. If nothing is rounded (no reduction, or integers), all algorithms give the same bits. The smallest cost decides.
//  3. The bits of a reduction of a floating type must not depend on the size of the batch, because fusion changes that
//     size. So the addition order is chosen first, by the team and the type alone: the order of the cheapest algorithm
//     with a fixed order at one megabyte. Then the size of the batch chooses among the algorithms of that order. The
//     orders today:
//       "fixed pairing"  tree, halving_doubling, and ring over at most two seats
//       "native"         only native (in shared memory: rank order)
//       "hierarchical"   only hierarchical: a team on several nodes never alternates between it and the others
//     An order that is not fixed is taken only if there is no other, or by rule 1.
//  4. For tensors on devices, what a link does itself mostly has no fixed order, but is fast. So the cheapest algorithm
//     at one megabyte leads, whatever its order is. If its order is fixed, rule 3 goes on from there; if not, the size
//     of each batch decides among all algorithms. Adasum's result depends on whether the ranks of a node give their
//     mean to it (hierarchical), so its order is always kept.
//  5. Tensors on devices: HOROVOD_HIERARCHICAL_ALLREDUCE=1 takes hierarchical for allreduce where it is possible, 0
//     never where something else is; HOROVOD_TORUS_ALLREDUCE=1 implies 1; HOROVOD_HIERARCHICAL_ALLGATHER=1 stages
//     allgather, since that of host memory is hierarchical.
// The choice is a pure function of values that are equal on all ranks of the team. Thread-safe after make().
class Selector {
 public:
  // Fails if a name is not an algorithm or a verb, and if an algorithm cannot do the verb.
  static Result<std::unique_ptr<Selector>> make(const Config& config);

  // Fails if no algorithm is possible. It then fails in the same way on all ranks of the team, and the error says why.
  // The pointer is never null.
  Result<const Algorithm*> choose(const Collective& collective, const Team& team) const;
  // Returns null if no algorithm is possible.
  const Algorithm* find(const Collective& collective, const Team& team) const;
  // Returns one line: the chosen algorithm and the reason.
  std::string explain(const Collective& collective, const Team& team) const;
  // Returns the whole table for a team: verb × size × algorithm, and the reasons. Rank 0 logs it at the level debug.
  std::string table(const Team& team, DataType dtype = DataType::f32) const;

 private:
  struct Choice {
    const Algorithm* algorithm = nullptr;
    Cost cost;
    const char* reason = "";
  };
  Selector();
  Status read_overrides(std::string_view text);
  // What the knobs about hierarchy want for a collective on a device.
  struct Wanted {
    const Algorithm* algorithm = nullptr;  // the one to be taken if it is possible
    const Algorithm* avoided = nullptr;    // the one to be taken only if there is no other
    const char* knob = "";
  };
  Wanted wanted_on_device(const Collective& collective, const Team& team) const;
  Choice decide(const Collective& collective, const Team& team) const;
  Choice by_cost(const Collective& collective, const Team& team, const Algorithm* avoided) const;
  // Returns the cheapest algorithm with the given addition order. With an empty order, any order is allowed.
  Choice cheapest(const Collective& collective, const Team& team, std::string_view order, bool must_be_fixed,
                  const Algorithm* avoided) const;
  std::string costs_of_others(const Collective& collective, const Team& team, const Algorithm* chosen) const;
  const Algorithm* named(std::string_view name) const;

  std::vector<std::unique_ptr<Algorithm>> algorithms_;
  std::string hierarchical_allreduce_;  // the knobs of rule 5
  bool torus_allreduce_ = false, hierarchical_allgather_ = false;
  std::vector<const Algorithm*> overrides_;  // the user's algorithm for each verb; null if the user asked for none
};

}  // namespace hvd::collectives
