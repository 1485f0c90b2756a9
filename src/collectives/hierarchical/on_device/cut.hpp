#pragma once
// Cuts a batch into chunks, and divides each chunk among the ranks of a node. The cut is equal on all ranks.
//
//  allreduce  consecutive elements; a chunk is one piece.
//  adasum     whole tensors, because each tensor has its own coefficients; each tensor is a piece.
#include <cstdint>
#include <span>
#include <vector>

#include "base/collective.hpp"
#include "base/tensor_view.hpp"

namespace hvd::collectives::hierarchical {

// A range of the batch. Of its elements the rank k of a node gets those from k * share on, at most `share`; the last
// ranks get zeros in place of what is missing.
struct PieceOfChunk {
  std::int64_t begin = 0, count = 0;
  std::int64_t share = 0;
  std::int64_t place = 0;  // where the piece begins in a rank's share of the chunk
};

class CutOfBatch {
 public:
  CutOfBatch(const Collective& collective, int rails);

  // Prepares for the next batch. A share of a chunk has about `share` elements at most.
  void restart(std::span<const Segment> tensors, std::int64_t share);

  std::int64_t chunks() const { return static_cast<std::int64_t>(firsts_.size()) - 1; }
  std::span<const PieceOfChunk> pieces(std::int64_t chunk) const {
    const auto index = static_cast<std::size_t>(chunk);
    return std::span(pieces_).subspan(firsts_[index], firsts_[index + 1] - firsts_[index]);
  }
  // The elements of one rank's share of the chunk.
  std::int64_t share(std::int64_t chunk) const { return shares_[static_cast<std::size_t>(chunk)]; }
  std::int64_t longest_share() const { return longest_; }

 private:
  void add(std::int64_t begin, std::int64_t count, bool begins_chunk);

  const bool has_whole_tensors_;
  const int rails_;
  const std::int64_t aligned_;  // shares are multiples of so many elements
  std::vector<PieceOfChunk> pieces_;
  std::vector<std::size_t> firsts_;  // the first piece of each chunk, then the number of all pieces
  std::vector<std::int64_t> shares_;
  std::int64_t longest_ = 0;
};

}  // namespace hvd::collectives::hierarchical
