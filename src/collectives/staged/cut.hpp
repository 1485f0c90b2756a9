#pragma once
// Cuts a batch into chunks that are staged one after the other. The cut is equal on all seats, so each chunk is a
// collective of its own.
//
//  allreduce, broadcast        consecutive elements.
//  adasum                      whole tensors, because each tensor has its own coefficients.
//  allgather, reduce_scatter   the next elements of every seat's share; short shares end earlier.
//  alltoall                    the next elements of every pair's exchange. A seat knows only its own pairs, so the
//                              seats have to tell each other how many chunks they need.
#include <cstdint>
#include <span>
#include <vector>

#include "base/collective.hpp"
#include "collectives/algorithm.hpp"
#include "transport/segments/shares.hpp"
#include "transport/segments/splits.hpp"

namespace hvd::collectives::staged {

// A range of a batch's tensors, which are treated as one array.
struct Range {
  std::int64_t begin = 0, count = 0;
};

struct Chunk {
  std::vector<Range> in, out;                // ranges of the chunk; adasum has one for each tensor
  std::vector<std::int64_t> counts;          // for allgather and reduce_scatter: elements of each seat
  std::vector<std::int64_t> sent, received;  // for alltoall: elements of each seat
};

class Cut {
 public:
  // `elements` is the approximate number of elements in one seat's part of a chunk.
  Cut(const Collective& collective, const Group& group, std::int64_t elements);

  // Has the meaning of Task::resize().
  void resize(std::span<const std::int64_t> sent, std::span<const std::int64_t> received);
  void restart(std::span<const Segment> in, std::span<const Segment> out);
  // The number of chunks that this seat needs. An alltoall runs the largest number that any seat needs.
  std::int64_t chunks() const { return chunks_; }
  // Writes the description into `chunk` and reuses its memory.
  void describe(std::int64_t index, Chunk& chunk) const;

 private:
  void cut_tensors(std::span<const Segment> tensors);
  // Returns a chunk's part of `count` elements that begin at `begin`.
  Range piece(std::int64_t index, std::int64_t begin, std::int64_t count) const;

  const Verb verb_;
  const Seat root_, me_;
  const int size_;
  const std::int64_t elements_;  // number of elements in a chunk, or in one seat's part of it if the batch is cut by
                                 // seat
  transport::Shares shares_;     // for allgather and reduce_scatter
  transport::Splits splits_;     // for alltoall
  std::int64_t total_ = 0, total_out_ = 0;
  std::int64_t chunks_ = 0;
  std::vector<std::int64_t> begins_;  // for adasum: where each tensor begins; the last entry is the end
  std::vector<std::size_t> firsts_;   // for adasum: the first tensor of each chunk, then the number of all tensors
};

}  // namespace hvd::collectives::staged
