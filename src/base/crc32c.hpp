#pragma once
// CRC-32C (Castagnoli; RFC 3720, B.4), with the processor's own instruction where it has one.
#include <cstdint>

#include "base/bytes.hpp"

namespace hvd {

// Of `bytes`, or of what gave `before` with `bytes` behind it.
std::uint32_t crc32c(ConstBytes bytes, std::uint32_t before = 0) noexcept;

// The same without the instruction, for processors that lack it.
std::uint32_t crc32c_by_table(ConstBytes bytes, std::uint32_t before = 0) noexcept;

}  // namespace hvd
