#include "devices/cuda/descriptors.hpp"

#include <utility>

namespace hvd::devices::cuda {

namespace {
constexpr std::size_t pieces_at_a_time = 8;
}

Result<DescriptorRing::Piece> DescriptorRing::take(Pool& pool, const Events& events) {
  std::lock_guard lock(mutex_);
  if (pieces_.empty() || !events.has_come(pieces_.front().free_at)) {
    auto host = pool.allocate(pieces_at_a_time * piece_bytes, Where::on_host, {});
    if (!host) return host.error();
    auto device = pool.allocate(pieces_at_a_time * piece_bytes, Where::on_device, {});
    if (!device) return device.error();
    for (std::size_t i = 0; i < pieces_at_a_time; ++i)
      pieces_.push_front({host->data() + i * piece_bytes, device->data() + i * piece_bytes, Event{}});
    memory_.push_back(std::move(*host));
    memory_.push_back(std::move(*device));
  }
  const Piece piece = pieces_.front();
  pieces_.pop_front();
  return piece;
}

void DescriptorRing::give_back(const Piece& piece) {
  std::lock_guard lock(mutex_);
  pieces_.push_back(piece);
}

}  // namespace hvd::devices::cuda
