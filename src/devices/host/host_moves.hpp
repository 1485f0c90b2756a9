#pragma once
// Moves on the host, at once.
#include <span>

#include "base/result.hpp"
#include "devices/moves.hpp"

namespace hvd::devices {

// Has the meaning of Device::move().
Status move_on_host(std::span<const Move> moves, const Treatment& treatment);

}  // namespace hvd::devices
