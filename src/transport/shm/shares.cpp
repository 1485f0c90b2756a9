#include "base/panic.hpp"
#include "transport/shm/tasks.hpp"

namespace hvd::transport::shm {

void BytesOfSeats::deal(std::size_t total_bytes, int me, std::size_t my_bytes) {
  shares_.deal(static_cast<std::int64_t>(total_bytes / element_));
  largest_ = static_cast<std::size_t>(shares_.largest()) * element_;
  if (bytes(me) != my_bytes)
    panic("expected segments of " + std::to_string(bytes(me)) + " bytes for seat " + std::to_string(me) + ", found " +
          std::to_string(my_bytes));
}

}  // namespace hvd::transport::shm
