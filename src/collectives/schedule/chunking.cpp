#include "collectives/schedule/chunking.hpp"

#include <algorithm>

namespace hvd::collectives {

Chunking::Chunking(Verb verb, int blocks, std::int64_t chunk_elements)
    : by_seat_(transport::has_shares(verb)),
      piece_elements_(std::max<std::int64_t>(1, by_seat_ ? chunk_elements / blocks : chunk_elements)),
      shares_(verb, by_seat_ ? blocks : 0) {}

void Chunking::restart(std::int64_t total) {
  total_ = total;
  if (by_seat_) shares_.deal(total);
  const std::int64_t longest = by_seat_ ? shares_.largest() : total;
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
  for (int seat = 0; seat < shares_.seats(); ++seat) all += count(chunk, seat, shares_.seats());
  return all;
}

}  // namespace hvd::collectives
