#pragma once
// For allreduce and broadcast: cuts a batch into chunks, and divides each chunk among the rails. Rail k carries the
// k-th share.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/schedule/cost_model.hpp"
#include "collectives/schedule/scratch.hpp"
#include "collectives/schedule/stage_tasks.hpp"

namespace hvd::collectives::hierarchical {

inline constexpr std::size_t full_share_bytes = 256 << 10;
// A chunk of at most this size travels only on the first rail. For such short messages the cost is their number,
// provided that the rank on the first rail reduces the data of its node's ranks quickly. Measured with 2 ranks a node.
inline constexpr std::int64_t short_chunk_bytes = 4 << 10, short_chunk_bytes_of_node = 32 << 10;

class RailShares {
 public:
  // Prepares for batches of about `total` elements.
  RailShares(const Team& team, DataType dtype, std::int64_t total = 0)
      : rails_(team.rails),
        dtype_(dtype),
        short_elements_(std::min(short_chunk_bytes, short_chunk_bytes_of_node / ranks_per_node(team)) /
                        static_cast<std::int64_t>(size_of(dtype))),
        chunk_elements_(static_cast<std::int64_t>(full_share_bytes / size_of(dtype)) * team.rails),
        is_even_(team.nodes * team.rails == team.size()),
        total_(total),
        counts_(static_cast<std::size_t>(team.node->size()), 0) {}

  void restart(std::int64_t total) { total_ = total; }

  std::int64_t chunk_elements() const { return chunk_elements_; }
  std::int64_t chunks() const { return (total_ + chunk_elements_ - 1) / chunk_elements_; }
  std::int64_t chunk_begin(std::int64_t chunk) const { return chunk * chunk_elements_; }
  std::int64_t chunk_count(std::int64_t chunk) const { return std::min(chunk_elements_, total_ - chunk_begin(chunk)); }
  std::int64_t begin(std::int64_t chunk, int rail) const { return chunk_begin(chunk) + end_in_chunk(chunk, rail); }
  std::int64_t count(std::int64_t chunk, int rail) const {
    return end_in_chunk(chunk, rail + 1) - end_in_chunk(chunk, rail);
  }

  // The length of a share of the chunk. The last shares may be shorter.
  std::int64_t full_share(std::int64_t chunk) const {
    int among = carriers(chunk);
    return (chunk_count(chunk) + among - 1) / among;
  }
  // On the node all carried shares of a chunk have the same length, including padding. If the nodes have equal numbers
  // of ranks and all rails carry a share, this division is the usual one without counts. Otherwise the plans have
  // counts, and because of the padding few plans serve all sizes.
  std::int64_t padded_count(std::int64_t chunk, int rail) const {
    if (rail >= carriers(chunk)) return 0;
    return has_counts(chunk) ? rounded(full_share(chunk), is_short(chunk)) : full_share(chunk);
  }
  // Returns `count` elements of memory that has room for a padded share. All stages of the chunk use the same memory.
  Segment padded_segment(Scratch& memory, std::int64_t chunk, std::int64_t count) const {
    std::byte* data = memory.reserve(static_cast<std::size_t>(padded_count(chunk, 0)) * size_of(dtype_));
    return {TensorView{data, count, dtype_}};
  }
  // Returns the task of a node's stage in which the rank of rail k gives or gets its padded share. The other ranks give
  // or get nothing.
  Task& node_task(StageTasks& tasks, std::int64_t chunk) {
    if (!has_counts(chunk)) return tasks.any_size();
    for (int rail = 0; rail < rails_; ++rail) counts_[static_cast<std::size_t>(rail)] = padded_count(chunk, rail);
    return tasks.with_counts(counts_);
  }
  // Adds all padded shares of a chunk. The padding has null data.
  void append_padded(const SegmentArray& tensors, std::int64_t chunk, std::vector<Segment>& to) const {
    for (int rail = 0; rail < rails_; ++rail) {
      tensors.append_range(begin(chunk, rail), count(chunk, rail), to);
      if (std::int64_t padding = padded_count(chunk, rail) - count(chunk, rail); padding > 0)
        to.push_back({TensorView{nullptr, padding, dtype_}});
    }
  }

 private:
  bool is_short(std::int64_t chunk) const { return chunk_count(chunk) <= short_elements_; }
  int carriers(std::int64_t chunk) const { return is_short(chunk) ? 1 : rails_; }
  bool has_counts(std::int64_t chunk) const { return !is_even_ || carriers(chunk) != rails_; }
  std::int64_t end_in_chunk(std::int64_t chunk, int rails) const {
    return std::min(chunk_count(chunk), rails * full_share(chunk));
  }
  // Rounds a share up: a short one to a power of two, since a few bytes more cost nothing. From one power of two to the
  // next there are four sizes for longer shares, so at most a fifth of such a share is padding.
  static std::int64_t rounded(std::int64_t share, bool is_short) {
    if (is_short) return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(share)));
    std::int64_t step = 1;
    while (step * 8 < share) step *= 2;
    return (share + step - 1) / step * step;
  }

  const int rails_;
  const DataType dtype_;
  const std::int64_t short_elements_, chunk_elements_;
  const bool is_even_;  // all nodes of the team have the same number of ranks
  std::int64_t total_;
  std::vector<std::int64_t> counts_;
};

}  // namespace hvd::collectives::hierarchical
