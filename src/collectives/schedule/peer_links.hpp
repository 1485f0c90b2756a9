#pragma once
// Finds the link to a seat of a team: the link of this node if the seat is on this node, otherwise the link of the
// team.
#include <vector>

#include "collectives/algorithm.hpp"

namespace hvd::collectives {

class PeerLinks {
 public:
  // A seat's link, and the seat's number in that link's group.
  struct Peer {
    transport::Link* link = nullptr;
    Seat seat{-1};
  };

  // Uses the links, which must outlive this object.
  explicit PeerLinks(const Team& team) {
    for (int seat = 0; seat < team.size(); ++seat) peers_.push_back({team.link, Seat{seat}});
    if (team.node == nullptr || team.node->link == nullptr) return;
    const Group& node = team.node->group;
    for (int on_node = 0; on_node < node.size(); ++on_node) {
      Seat seat = team.group.seat_of(node.rank_at(Seat{on_node}));
      if (seat.value >= 0) peers_[static_cast<std::size_t>(seat.value)] = {team.node->link, Seat{on_node}};
    }
  }

  const Peer& to(Seat seat) const { return peers_[static_cast<std::size_t>(seat.value)]; }

 private:
  std::vector<Peer> peers_;  // one for each seat of the team
};

}  // namespace hvd::collectives
