#pragma once
// The wire format of the local store (described in local_store.hpp), as its two ends share it.
#include <cstdint>

#include "base/bytes.hpp"

namespace hvd::bootstrap::local_store {

inline constexpr std::uint32_t magic = 0x48764c73;
inline constexpr std::uint32_t wire_version = 1;

enum class Verb : std::uint8_t { hello = 1, put, get, fence, abort, leave, welcome, done, value, failed };

// Begins a message; the body is appended with a ByteWriter.
inline Buffer message(Verb verb, std::uint32_t ticket) {
  Buffer buffer;
  ByteWriter out(buffer);
  out.put(static_cast<std::uint8_t>(verb));
  out.put(ticket);
  return buffer;
}

}  // namespace hvd::bootstrap::local_store
