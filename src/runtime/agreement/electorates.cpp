#include "runtime/agreement/electorates.hpp"

#include <algorithm>

namespace hvd::runtime {

void Electorates::note_join(Rank rank) {
  joined_.resize(static_cast<std::size_t>(settings_.world_size));
  joined_[static_cast<std::size_t>(rank.value)] = true;
}

Electorate Electorates::electorate_of(const ProcessSet& set) const {
  Electorate electorate;
  electorate.subtrees = Subtrees(settings_.children);
  std::size_t seats = settings_.ranks.size();
  bool is_everybody = set.id == global_process_set && joined_.empty();
  electorate.voters.assign(seats + static_cast<std::size_t>(settings_.children), is_everybody);
  if (is_everybody) {
    for (int part = 0; part <= settings_.children; ++part) electorate.subtrees.add(part);
    return electorate;
  }
  for (Rank rank : set.ranks) {
    if (set.id == global_process_set && !joined_.empty() && joined_[static_cast<std::size_t>(rank.value)]) continue;
    auto local = std::ranges::find(settings_.ranks, rank);
    int child = local != settings_.ranks.end() || settings_.children == 0 ? -1 : settings_.child_above(rank);
    if (local != settings_.ranks.end()) {
      electorate.voters[static_cast<std::size_t>(local - settings_.ranks.begin())] = true;
      electorate.subtrees.add(Subtrees::own_node);
    } else if (child >= 0) {
      electorate.voters[seats + static_cast<std::size_t>(child)] = true;
      electorate.subtrees.add(Subtrees::of_child(child));
    }
  }
  return electorate;
}

}  // namespace hvd::runtime
