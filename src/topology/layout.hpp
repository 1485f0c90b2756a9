#pragma once
// Tells which ranks share a node, lead a node, or form a rail. Pure functions of a World, so the results are equal on
// all ranks.
#include <cstdint>
#include <span>
#include <vector>

#include "base/group.hpp"
#include "base/world.hpp"

namespace hvd::topology {

// A layout of some ranks (the whole world, or a process set), as one of them sees it. The groups are made as follows:
//  - A node is the set of ranks with the same node id. Nodes are numbered by their lowest rank. So block, cyclic and
//    scattered placement all have one numbering, and every rank computes the same one.
//  - The local rank is a rank's position among the ranks of its node, in ascending order.
//  - The k-th rail consists of the k-th rank of every node, ordered by node. There are as many rails as the smallest
//    node has ranks. Further ranks have no rail.
//  - The cross group is what Horovod's users call cross: the ranks with this local rank on all nodes that have one.
struct Layout {
  Group world;    // the ranks that the layout is about, in the order given
  Group node;     // the ranks on this node
  Group leaders;  // the lowest rank of every node, by node; this rank has a seat if it is one of them
  Group rail;     // empty, without a seat for this rank, if the local rank is not below `rails`
  Group cross;

  std::vector<std::int32_t> node_of;  // for each seat of `world`: the number of its node
  int nodes = 0;
  int my_node = 0;       // number of this rank's node
  int rails = 0;         // number of ranks on the smallest node
  int largest_node = 0;  // number of ranks on the largest node

  bool is_homogeneous() const { return rails == largest_node; }
};

Layout layout_of(const World& world);
// Returns the layout of the ranks of a process set. They must include world.rank, and each rank only once.
Layout layout_of(const World& world, std::span<const Rank> ranks);

}  // namespace hvd::topology
