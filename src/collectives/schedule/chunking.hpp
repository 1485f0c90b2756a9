#pragma once
// Tells which elements of a batch belong to a chunk, and which elements of a chunk belong to a block.
#include <cstdint>
#include <span>

#include "collectives/schedule/program.hpp"
#include "transport/segments/shares.hpp"

namespace hvd::collectives {

// There are two ways to cut a batch. For most verbs it is cut into chunks, and each chunk is divided into blocks. For
// allgather and reduce_scatter every seat has a share of the batch, and a chunk consists of a piece of every share.
class Chunking {
 public:
  Chunking(Verb verb, int blocks, std::int64_t chunk_elements);

  // Has the meaning of Task::resize().
  void resize(std::span<const std::int64_t> sent, std::span<const std::int64_t> received) {
    shares_.resize(sent, received);
  }
  void restart(std::int64_t total);

  std::int64_t total() const { return total_; }
  std::int64_t chunks() const { return chunks_; }
  std::int64_t share_begin(int block) const { return shares_.begin(block); }
  std::int64_t share_count(int block) const { return shares_.count(block); }

  // The parts of a chunk: block `b` of chunk `c` is [begin(c, b), begin(c, b) + count(c, b)) in the batch.
  std::int64_t begin(std::int64_t chunk, int block, int blocks) const;
  std::int64_t count(std::int64_t chunk, int block, int blocks) const;
  std::int64_t count(std::int64_t chunk) const;
  // True if the chunk is one range of the batch that begins with its first block.
  bool is_one_range() const { return !by_seat_ || chunks_ <= 1; }

 private:
  std::int64_t piece_begin(std::int64_t chunk, std::int64_t of) const;

  const bool by_seat_;
  const std::int64_t piece_elements_;  // number of elements in a chunk, or in one seat's part of a chunk
  std::int64_t total_ = 0;
  std::int64_t chunks_ = 0;
  transport::Shares shares_;  // used only if a chunk is cut by seat
};

}  // namespace hvd::collectives
