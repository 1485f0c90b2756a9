#pragma once
// What ranks and a store say to each other: the local store's wire format (described in local_store.hpp). The same
// messages also go over TCP (tcp_server.hpp).
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/bytes.hpp"
#include "base/checksums/sha256.hpp"

namespace hvd::bootstrap::store {

inline constexpr std::uint32_t magic = 0x48764c73;
inline constexpr std::uint32_t wire_version = 6;
inline constexpr std::size_t largest_key = 256;
inline constexpr std::size_t largest_value = 64 << 10;
inline constexpr std::size_t largest_message = largest_value + 1024;
inline constexpr std::size_t piece_bytes = 60 << 10;  // size of a piece of the table with all cards
// a connection is lost if the other end's host gives no sign of life for this time
inline constexpr std::chrono::seconds lost_host_time(30);
inline constexpr std::chrono::seconds answer_time(30);  // for answers that do not depend on another rank

enum class Verb : std::uint8_t {
  hello = 1,
  put,
  get,
  fence,
  abort,
  leave,
  welcome,
  done,
  value,
  failed,
  stranger,
  card,
  exchange,
  piece,
  all,
  absent,
  publish,
  fetch,
  ended,
  assign,
  assigned,
  news
};

// A message that goes to many clients, which share its bytes.
struct Message {
  Buffer bytes;
  mutable std::optional<Digest> digest{};  // computed when it is first needed
};
using SharedMessage = std::shared_ptr<const Message>;

// Begins a message. The caller appends the body with a ByteWriter.
inline Buffer message(Verb verb, std::uint32_t ticket) {
  Buffer buffer;
  ByteWriter out(buffer);
  out.put(static_cast<std::uint8_t>(verb));
  out.put(ticket);
  return buffer;
}

}  // namespace hvd::bootstrap::store
