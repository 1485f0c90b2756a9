#pragma once
// Which ranks of a node and which subtrees below it have a say about each process set. A rank that has joined has none
// about the world.
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "runtime/agreement/subtrees.hpp"
#include "runtime/operations/process_sets.hpp"

namespace hvd::runtime {

struct Electorate {
  std::vector<bool> voters;  // first the ranks of this node by seat, then the children
  Subtrees subtrees;
};

class Electorates {
 public:
  struct Settings {
    std::vector<Rank> ranks;  // ranks of this node, by seat
    int children = 0;
    std::function<int(Rank)> child_above;  // as NodeAgreement::Settings has it
    int world_size = 0;
  };
  explicit Electorates(Settings settings) : settings_(std::move(settings)) {}

  // Determines who has a say about the set from now on. References to an electorate stay valid until its removal.
  const Electorate& elect(const ProcessSet& set) { return electorates_[set.id] = electorate_of(set); }
  const Electorate& at(ProcessSetId set) const { return electorates_.at(set); }
  void remove(ProcessSetId set) { electorates_.erase(set); }

  // Joins count from the next elect() of the world on.
  void note_join(Rank rank);
  void end_joins() { joined_.clear(); }
  bool have_some_joined() const { return !joined_.empty(); }

 private:
  Electorate electorate_of(const ProcessSet& set) const;

  const Settings settings_;
  std::map<ProcessSetId, Electorate> electorates_;
  std::vector<bool> joined_;  // by rank; empty while no rank has joined
};

}  // namespace hvd::runtime
