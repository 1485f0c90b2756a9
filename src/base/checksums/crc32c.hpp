#pragma once
// CRC-32C (Castagnoli; RFC 3720, B.4). Uses the processor's instruction for it if there is one.
#include <cstdint>

#include "base/bytes.hpp"

namespace hvd {

// Returns the checksum of `bytes`. With `before`, the checksum of earlier bytes, the result is that of the earlier
// bytes followed by `bytes`.
std::uint32_t crc32c(ConstBytes bytes, std::uint32_t before = 0) noexcept;

// Computes the same checksum without the instruction, for processors that do not have it.
std::uint32_t crc32c_by_table(ConstBytes bytes, std::uint32_t before = 0) noexcept;

}  // namespace hvd
