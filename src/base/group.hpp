#pragma once
// An ordered set of ranks, and this rank's seat in it.
#include <algorithm>
#include <vector>

#include "base/ids.hpp"

namespace hvd {

struct Group {
  std::vector<Rank> ranks;  // the ranks of the group: ascending in process sets and nodes, ordered by node in rails
  Seat me{-1};              // this rank's seat; -1: this rank is not a member

  int size() const noexcept { return static_cast<int>(ranks.size()); }
  bool has_me() const noexcept { return me.value >= 0; }
  Rank rank_at(Seat seat) const { return ranks[static_cast<std::size_t>(seat.value)]; }
  Seat seat_of(Rank rank) const {
    auto found = std::find(ranks.begin(), ranks.end(), rank);
    return Seat{found == ranks.end() ? -1 : static_cast<std::int32_t>(found - ranks.begin())};
  }
};

}  // namespace hvd
