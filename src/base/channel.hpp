#pragma once
// The tag of a message between two ranks. The sender and the receiver compute the same value.
#include <cstdint>

#include "base/ids.hpp"

namespace hvd {

struct Channel {
  Sequence batch;
  std::uint16_t stage = 0;
  std::uint32_t chunk = 0;
  friend bool operator==(const Channel&, const Channel&) = default;
};

}  // namespace hvd
