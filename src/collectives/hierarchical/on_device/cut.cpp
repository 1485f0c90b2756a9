#include "collectives/hierarchical/on_device/cut.hpp"

#include <algorithm>

namespace hvd::collectives::hierarchical {

namespace {

// Shares begin at multiples of this, as devices like it.
constexpr std::int64_t alignment_bytes = 16;

std::int64_t quotient_up(std::int64_t number, std::int64_t by) {
  return (number + by - 1) / by;
}

}  // namespace

CutOfBatch::CutOfBatch(const Collective& collective, int rails)
    : has_whole_tensors_(collective.verb == Verb::adasum),
      rails_(rails),
      aligned_(alignment_bytes / static_cast<std::int64_t>(size_of(collective.dtype))),
      firsts_(1, 0) {}

void CutOfBatch::restart(std::span<const Segment> tensors, std::int64_t share) {
  pieces_.clear();
  firsts_.clear();
  shares_.clear();
  longest_ = 0;
  std::int64_t all = 0;
  for (const Segment& tensor : tensors) {
    const std::int64_t count = tensor.view.count;
    const std::int64_t mine = quotient_up(quotient_up(count, rails_), aligned_) * aligned_;
    if (has_whole_tensors_ && count > 0) add(all, count, firsts_.empty() || shares_.back() + mine > share);
    all += count;
  }
  if (!has_whole_tensors_ && all > 0) {
    // The chunks have equal lengths, except the last one.
    const std::int64_t chunks = quotient_up(all, std::max<std::int64_t>(share, 1) * rails_);
    const std::int64_t of_share = quotient_up(quotient_up(all, chunks * rails_), aligned_) * aligned_;
    for (std::int64_t begin = 0; begin < all; begin += of_share * rails_)
      add(begin, std::min(of_share * rails_, all - begin), true);
  }
  firsts_.push_back(pieces_.size());
}

void CutOfBatch::add(std::int64_t begin, std::int64_t count, bool begins_chunk) {
  if (begins_chunk) {
    firsts_.push_back(pieces_.size());
    shares_.push_back(0);
  }
  PieceOfChunk piece{begin, count, quotient_up(quotient_up(count, rails_), aligned_) * aligned_, shares_.back()};
  shares_.back() += piece.share;
  longest_ = std::max(longest_, shares_.back());
  pieces_.push_back(piece);
}

}  // namespace hvd::collectives::hierarchical
