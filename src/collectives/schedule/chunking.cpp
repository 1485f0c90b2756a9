#include "collectives/schedule/chunking.hpp"

#include <algorithm>
#include <string>

#include "base/panic.hpp"

namespace hvd::collectives {

Chunking::Chunking(bool by_seat, int blocks, std::int64_t chunk_elements, std::span<const std::int64_t> counts)
    : by_seat_(by_seat),
      has_counts_(by_seat && !counts.empty()),
      piece_elements_(std::max<std::int64_t>(1, by_seat ? chunk_elements / blocks : chunk_elements)),
      share_begins_(by_seat ? static_cast<std::size_t>(blocks) + 1 : 0, 0) {
  if (!has_counts_) return;
  if (counts.size() + 1 != share_begins_.size())
    panic("expected a count for each of " + std::to_string(blocks) + " seats, found " + std::to_string(counts.size()));
  for (std::size_t seat = 0; seat < counts.size(); ++seat) share_begins_[seat + 1] = share_begins_[seat] + counts[seat];
}

void Chunking::restart(std::int64_t total) {
  total_ = total;
  std::int64_t longest = total;
  if (by_seat_) {
    longest = 0;
    const int blocks = static_cast<int>(share_begins_.size()) - 1;
    if (has_counts_ && share_begins_.back() != total)
      panic("a batch of " + std::to_string(total) + " elements was given to a plan for " +
            std::to_string(share_begins_.back()));
    if (!has_counts_)
      for (int seat = 0; seat < blocks; ++seat)
        share_begins_[static_cast<std::size_t>(seat) + 1] = transport::share_of(total, Seat{seat}, blocks).end;
    for (int seat = 0; seat < blocks; ++seat) longest = std::max(longest, share_count(seat));
  }
  chunks_ = (longest + piece_elements_ - 1) / piece_elements_;
}

// Returns where a chunk's piece of an array of `of` elements begins. For the chunk after the last one, this is the end.
std::int64_t Chunking::piece_begin(std::int64_t chunk, std::int64_t of) const {
  return std::min(of, chunk * piece_elements_);
}

std::int64_t Chunking::begin(std::int64_t chunk, int block, int blocks) const {
  if (by_seat_) return share_begin(block) + piece_begin(chunk, share_count(block));
  std::int64_t first = piece_begin(chunk, total_);
  return first + transport::share_of(piece_begin(chunk + 1, total_) - first, Seat{block}, blocks).begin;
}

std::int64_t Chunking::count(std::int64_t chunk, int block, int blocks) const {
  if (by_seat_) return piece_begin(chunk + 1, share_count(block)) - piece_begin(chunk, share_count(block));
  std::int64_t all = piece_begin(chunk + 1, total_) - piece_begin(chunk, total_);
  return transport::share_of(all, Seat{block}, blocks).count();
}

std::int64_t Chunking::count(std::int64_t chunk) const {
  if (!by_seat_) return piece_begin(chunk + 1, total_) - piece_begin(chunk, total_);
  std::int64_t all = 0;
  for (std::size_t seat = 0; seat + 1 < share_begins_.size(); ++seat) {
    std::int64_t share = share_begins_[seat + 1] - share_begins_[seat];
    all += piece_begin(chunk + 1, share) - piece_begin(chunk, share);
  }
  return all;
}

}  // namespace hvd::collectives
