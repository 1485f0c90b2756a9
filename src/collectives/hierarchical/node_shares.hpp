#pragma once
// Cuts a batch that belongs to the seats into chunks: the output of an allgather, or the input of a reduce_scatter.
// Divides each node's part of a chunk among the rails.
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/algorithm.hpp"
#include "transport/segments/shares.hpp"

namespace hvd::collectives::hierarchical {

// Every seat's share is cut into as many pieces as there are chunks. So all ranks take part in all chunks, even if the
// shares are uneven. A node's part of a chunk consists of the pieces of its ranks, one after the other. Rail k carries
// the k-th part of it (transport::share_of). So the rails carry equal amounts although the ranks contribute unequally.
class NodeShares {
 public:
  NodeShares(const Team& team, const Collective& collective);

  // Has the meaning of Task::resize().
  void resize(std::span<const std::int64_t> sent, std::span<const std::int64_t> received) {
    shares_.resize(sent, received);
  }
  // Prepares for the next batch, which has `total` elements.
  void restart(std::int64_t total);

  int nodes() const { return static_cast<int>(first_members_.size()) - 1; }
  int my_node() const { return my_node_; }
  int rails() const { return rails_; }
  std::int64_t chunks() const { return chunks_; }
  std::int64_t share_begin(Seat seat) const { return shares_.begin(seat.value); }
  std::int64_t share_count(Seat seat) const { return shares_.count(seat.value); }

  // The place of a seat's piece in the batch, and its length.
  std::int64_t piece_begin(std::int64_t chunk, Seat seat) const;
  std::int64_t piece_count(std::int64_t chunk, Seat seat) const;
  // The seats of this node, by local rank.
  std::span<const Seat> members() const { return members_of(my_node_); }
  // The number of elements that a rail carries for a node in a chunk.
  std::int64_t carried(std::int64_t chunk, int node, int rail) const;
  void append_carried(const SegmentArray& batch, std::int64_t chunk, int node, int rail,
                      std::vector<Segment>& to) const;
  // True if every rank of this node carries exactly its own piece. The ranks of the node then exchange nothing.
  bool is_own(std::int64_t chunk) const;

 private:
  std::span<const Seat> members_of(int node) const;
  std::int64_t count_of_node(std::int64_t chunk, int node) const;

  const int rails_;
  const std::int64_t node_chunk_elements_;
  int my_node_ = 0;
  std::vector<Seat> members_;               // the seats of all nodes: by node, then by local rank
  std::vector<std::size_t> first_members_;  // for each node: where its members begin; the last entry is the end
  transport::Shares shares_;
  std::vector<std::int64_t> pieces_;  // for each seat: the length of its pieces; the last ones may be shorter
  std::int64_t chunks_ = 0;
};

}  // namespace hvd::collectives::hierarchical
