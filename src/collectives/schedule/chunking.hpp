#pragma once
// Which elements of a batch make up a chunk, and which of those a block.
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/schedule/program.hpp"

namespace hvd::collectives {

// A batch is either cut into chunks and each chunk dealt out to the blocks (allreduce, broadcast: `by_seat` false), or
// it belongs to the seats and of every seat's share a piece makes up a chunk (allgather, reduce_scatter).
class Chunking {
 public:
  Chunking(bool by_seat, int blocks, std::int64_t chunk_elements, std::span<const std::int64_t> counts);

  // For the next batch. Without counts, `total` is dealt out evenly (transport::share_of).
  void restart(std::int64_t total);

  std::int64_t total() const { return total_; }
  std::int64_t chunks() const { return chunks_; }
  std::int64_t share_begin(int block) const { return share_begins_[static_cast<std::size_t>(block)]; }
  std::int64_t share_count(int block) const { return share_begin(block + 1) - share_begin(block); }

  // The parts of a chunk: in the batch, block `b` of chunk `c` is [begin(c, b), begin(c, b) + count(c, b)).
  std::int64_t begin(std::int64_t chunk, int block, int blocks) const;
  std::int64_t count(std::int64_t chunk, int block, int blocks) const;
  std::int64_t count(std::int64_t chunk) const;
  // Whether the chunk is one range of the batch, which begins with its first block.
  bool is_one_range() const { return !by_seat_ || chunks_ <= 1; }

 private:
  std::int64_t piece_begin(std::int64_t chunk, std::int64_t of) const;

  const bool by_seat_;
  const bool has_counts_;
  const std::int64_t piece_elements_;  // of a chunk, or of one seat's part of it
  std::int64_t total_ = 0;
  std::int64_t chunks_ = 0;
  std::vector<std::int64_t> share_begins_;  // by seat, and the total
};

}  // namespace hvd::collectives
