#include "base/panic.hpp"
#include "transport/shm/tasks.hpp"

namespace hvd::transport::shm {

void Shares::deal(std::size_t total_bytes, int me, std::size_t my_bytes) {
  bounds_.resize(static_cast<std::size_t>(size_) + 1);
  largest_ = 0;
  auto total = static_cast<std::int64_t>(total_bytes / element_);
  std::int64_t end = 0;
  bounds_[0] = 0;
  for (int seat = 0; seat < size_; ++seat) {
    end = counts_.empty() ? share_of(total, Seat{seat}, size_).end : end + counts_[static_cast<std::size_t>(seat)];
    bounds_[static_cast<std::size_t>(seat) + 1] = static_cast<std::size_t>(end) * element_;
    largest_ = std::max(largest_, bytes(seat));
  }
  if (bounds_.back() != total_bytes || bytes(me) != my_bytes) {
    panic("the segments of a batch do not add up to the counts of its plan");
  }
}

}  // namespace hvd::transport::shm
