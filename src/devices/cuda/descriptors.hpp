#pragma once
// Memory for the lists of tensors that do not fit into the parameters of a kernel: page-locked pieces, into which the
// host writes the list, each with a piece on the device, to which it is copied before the launch. They are used in
// turn.
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

#include "devices/cuda/events.hpp"
#include "devices/cuda/launches.hpp"
#include "devices/cuda/pool.hpp"

namespace hvd::devices::cuda {

class DescriptorRing {
 public:
  static constexpr std::size_t piece_bytes = 64 << 10;

  struct Piece {
    std::byte *host, *device;
    Event free_at;
  };
  // The caller has the piece until it calls give_back(), with the event behind the launch.
  Result<Piece> take(Pool& pool, const Events& events);
  void give_back(const Piece& piece);

 private:
  std::mutex mutex_;
  std::deque<Piece> pieces_;  // what was given back first is first
  std::deque<Memory> memory_;
};

}  // namespace hvd::devices::cuda
