#pragma once
// Chooses the algorithm of a collective over a team: the cheapest that gives the same bits every time.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.hpp"
#include "base/result.hpp"
#include "collectives/algorithm.hpp"

namespace hvd::collectives {

// The rules, in this order:
//  1. What the user asked for (HOROVOD_ALGORITHM, "allreduce=ring,broadcast=tree"), wherever it is possible.
//  2. Where nothing is rounded (no reduction, or integers) the bits are the same anyway: the smallest cost.
//  3. A reduction of floating type must not change its bits with the size of its batch, since fusion changes that. So
//     the addition order is chosen first, for the team and the type alone: that of the cheapest algorithm with a fixed
//     order at a megabyte. Then the batch's size chooses among the algorithms of that order. Equal orders today:
//       "fixed pairing"  tree, halving_doubling, and ring over at most two seats
//       "native"         native alone (in shared memory: rank order)
//       "hierarchical"   hierarchical alone: a team of several nodes never alternates between it and the flat ones
//     An order that is not fixed is taken only where there is no other, or by rule 1.
// All of it is a pure function of what is equal on all ranks of the team. Thread-safe after make().
class Selector {
 public:
  // Fails on a name that is no algorithm or no verb, and on an algorithm that does not do the verb.
  static Result<std::unique_ptr<Selector>> make(const Config& config);

  // Fails if no algorithm is possible, in the same way on all ranks of the team; the error says why. Never null.
  Result<const Algorithm*> choose(const Collective& collective, const Team& team) const;
  // Null if no algorithm is possible.
  const Algorithm* find(const Collective& collective, const Team& team) const;
  // One line: the algorithm that is chosen, and why.
  std::string explain(const Collective& collective, const Team& team) const;
  // The whole table for a team: verb × size × algorithm, and why. Rank 0 logs it at the level debug.
  std::string table(const Team& team, DataType dtype = DataType::f32) const;

 private:
  struct Choice {
    const Algorithm* algorithm = nullptr;
    Cost cost;
    const char* reason = "";
  };
  Selector();
  Status read_overrides(std::string_view text);
  Choice decide(const Collective& collective, const Team& team) const;
  // The cheapest with the given addition order (any, if empty).
  Choice cheapest(const Collective& collective, const Team& team, std::string_view order, bool must_be_fixed) const;
  const Algorithm* named(std::string_view name) const;

  std::vector<std::unique_ptr<Algorithm>> algorithms_;
  std::vector<const Algorithm*> overrides_;  // by verb; null if nothing is asked for
};

}  // namespace hvd::collectives
