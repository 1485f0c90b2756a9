#pragma once
// How a batch is cut into chunks that are staged one after the other: the same on all seats, so that each chunk is a
// collective of its own.
//
//  allreduce, broadcast        runs of elements.
//  adasum                      whole tensors, which have coefficients of their own.
//  allgather, reduce_scatter   of every seat's share the next elements; short shares end early.
//  alltoall                    of what every pair exchanges the next elements. A seat knows its own pairs alone, so the
//                              seats have to tell each other how many chunks they need.
#include <cstdint>
#include <span>
#include <vector>

#include "base/collective.hpp"
#include "collectives/algorithm.hpp"
#include "transport/segments/splits.hpp"

namespace hvd::collectives::staged {

// Of the tensors of a batch, read as one array.
struct Range {
  std::int64_t begin = 0, count = 0;
};

struct Chunk {
  std::vector<Range> in, out;                // adasum: one for each tensor
  std::vector<std::int64_t> counts;          // allgather, reduce_scatter: elements by seat
  std::vector<std::int64_t> sent, received;  // alltoall: elements by seat
};

class Cut {
 public:
  // `elements`: of a chunk on one seat, more or less.
  Cut(const Collective& collective, const Group& group, std::int64_t elements);

  // As Task::resize().
  void resize(std::span<const std::int64_t> sent, std::span<const std::int64_t> received);
  void restart(std::span<const Segment> in, std::span<const Segment> out);
  // That this seat needs; an alltoall has as many as the seat that needs most.
  std::int64_t chunks() const { return chunks_; }
  // Keeps the memory of `chunk`.
  void describe(std::int64_t index, Chunk& chunk) const;

 private:
  void cut_shares(std::int64_t total);
  void cut_tensors(std::span<const Segment> tensors);
  // What a chunk has of `count` elements of one seat that begin there.
  Range piece(std::int64_t index, std::int64_t begin, std::int64_t count) const;
  bool is_by_seat() const { return verb_ == Verb::allgather || verb_ == Verb::reduce_scatter; }

  const Verb verb_;
  const Seat root_, me_;
  const int size_;
  const std::int64_t elements_;  // of a chunk; of a seat's part of it where it is by seat
  const std::vector<std::int64_t> planned_counts_;
  transport::Splits splits_;
  std::int64_t total_ = 0, total_out_ = 0;
  std::int64_t chunks_ = 0;
  std::vector<std::int64_t> begins_;  // of the shares, by seat, and the end of all; of adasum's tensors likewise
  std::vector<std::size_t> firsts_;   // adasum: the first tensor of each chunk, and the number of all
};

}  // namespace hvd::collectives::staged
