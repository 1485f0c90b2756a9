#pragma once
// Tells which elements of a batch belong to a chunk, and which elements of a chunk belong to a block.
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/schedule/program.hpp"

namespace hvd::collectives {

// There are two ways to cut a batch. With `by_seat` false (allreduce, broadcast) it is cut into chunks, and each chunk
// is divided into blocks. With `by_seat` true (allgather, reduce_scatter) every seat has a share of the batch, and a
// chunk consists of a piece of every share.
class Chunking {
 public:
  Chunking(bool by_seat, int blocks, std::int64_t chunk_elements, std::span<const std::int64_t> counts);

  // Prepares for the next batch. Without counts, `total` is divided evenly (transport::share_of).
  void restart(std::int64_t total);

  std::int64_t total() const { return total_; }
  std::int64_t chunks() const { return chunks_; }
  std::int64_t share_begin(int block) const { return share_begins_[static_cast<std::size_t>(block)]; }
  std::int64_t share_count(int block) const { return share_begin(block + 1) - share_begin(block); }

  // The parts of a chunk: block `b` of chunk `c` is [begin(c, b), begin(c, b) + count(c, b)) in the batch.
  std::int64_t begin(std::int64_t chunk, int block, int blocks) const;
  std::int64_t count(std::int64_t chunk, int block, int blocks) const;
  std::int64_t count(std::int64_t chunk) const;
  // True if the chunk is one range of the batch that begins with its first block.
  bool is_one_range() const { return !by_seat_ || chunks_ <= 1; }

 private:
  std::int64_t piece_begin(std::int64_t chunk, std::int64_t of) const;

  const bool by_seat_;
  const bool has_counts_;
  const std::int64_t piece_elements_;  // number of elements in a chunk, or in one seat's part of a chunk
  std::int64_t total_ = 0;
  std::int64_t chunks_ = 0;
  std::vector<std::int64_t> share_begins_;  // where each seat's share begins; the last entry is the total
};

}  // namespace hvd::collectives
