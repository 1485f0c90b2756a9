#pragma once
// How a batch that belongs to the seats (the output of an allgather, the input of a reduce_scatter) is cut into chunks,
// and how each node's part of a chunk is dealt out to the rails.
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/algorithm.hpp"

namespace hvd::collectives::hierarchical {

// Every seat's share is cut into as many pieces as there are chunks: all ranks take part in all chunks, however uneven
// the shares are. What a chunk has of a node are the pieces of its ranks, one after the other; of these, rail k carries
// the k-th part (transport::share_of), so the rails carry equally much although the ranks contribute unequally.
class NodeShares {
 public:
  NodeShares(const Team& team, const Collective& collective);

  // For the next batch, which has so many elements. Without counts they are dealt out evenly to the seats.
  void restart(std::int64_t total);

  int nodes() const { return static_cast<int>(first_members_.size()) - 1; }
  int my_node() const { return my_node_; }
  int rails() const { return rails_; }
  std::int64_t chunks() const { return chunks_; }
  std::int64_t share_begin(Seat seat) const { return share_begins_[static_cast<std::size_t>(seat.value)]; }
  std::int64_t share_count(Seat seat) const { return share_begin(Seat{seat.value + 1}) - share_begin(seat); }

  // A seat's piece: where it is in the batch, and how long.
  std::int64_t piece_begin(std::int64_t chunk, Seat seat) const;
  std::int64_t piece_count(std::int64_t chunk, Seat seat) const;
  // The seats of my node, by local rank.
  std::span<const Seat> members() const { return members_of(my_node_); }
  // The part of a chunk that a rail carries for a node.
  std::int64_t carried(std::int64_t chunk, int node, int rail) const;
  void append_carried(const SegmentArray& batch, std::int64_t chunk, int node, int rail,
                      std::vector<Segment>& to) const;
  // Whether every rank of my node carries just its own piece, so that the ranks of the node exchange nothing.
  bool is_own(std::int64_t chunk) const;

 private:
  std::span<const Seat> members_of(int node) const;
  std::int64_t count_of_node(std::int64_t chunk, int node) const;

  const int rails_;
  const bool has_counts_;
  const std::int64_t node_chunk_elements_;
  int my_node_ = 0;
  std::vector<Seat> members_;               // by node, and there by local rank
  std::vector<std::size_t> first_members_;  // by node: where its members begin; and the end
  std::vector<std::int64_t> share_begins_;  // by seat; and the end
  std::vector<std::int64_t> pieces_;        // by seat: the length of all pieces but the last ones
  std::int64_t chunks_ = 0;
};

}  // namespace hvd::collectives::hierarchical
