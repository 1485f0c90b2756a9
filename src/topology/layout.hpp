#pragma once
// Which ranks share a node, which lead one, and which form a rail: pure functions of a World, equal on all ranks.
#include <cstdint>
#include <span>
#include <vector>

#include "base/group.hpp"
#include "base/world.hpp"

namespace hvd::topology {

// A layout of some ranks (the whole world, or a process set), seen from one of them. How the groups are made:
//  - A node is the set of ranks with an equal node id. Nodes are numbered by their lowest rank, so block, cyclic and
//    scattered placement all have one numbering that every rank computes alike.
//  - The local rank is a rank's position among the ranks of its node, ascending.
//  - The k-th rail is the k-th rank of every node, by node. There are as many rails as the smallest node has ranks;
//    ranks beyond that have no part in the rails.
//  - The cross group is what Horovod's users call cross: the nodes that have my local rank, the smaller ones left out.
struct Layout {
  Group world;    // the ranks that the layout is about, in the order given
  Group node;     // those on my node
  Group leaders;  // the lowest of every node, by node; I have a seat if I am one
  Group rail;     // no seat for me if my local rank is not below `rails`; then it is empty
  Group cross;

  std::vector<std::int32_t> node_of;  // by seat of `world`: the number of its node
  int nodes = 0;
  int my_node = 0;       // number of my node
  int rails = 0;         // ranks on the smallest node
  int largest_node = 0;  // ranks on the largest

  bool is_homogeneous() const { return rails == largest_node; }
};

Layout layout_of(const World& world);
// Of the ranks of a process set, of which world.rank is one; each rank once.
Layout layout_of(const World& world, std::span<const Rank> ranks);

}  // namespace hvd::topology
