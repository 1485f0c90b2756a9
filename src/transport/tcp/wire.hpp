#pragma once
// The format of a link's connection: headers, each followed by the bytes that it announces.
#include <cstdint>

#include "transport/transport.hpp"

namespace hvd::transport::tcp {

struct Header {
  enum class Kind : std::uint16_t {
    message,
    abort,  // the sender has aborted the link; the bytes give the reason. Nothing follows
  };
  std::uint64_t batch = 0;
  std::uint64_t bytes = 0;
  std::uint32_t chunk = 0;
  std::uint16_t stage = 0;
  Kind kind = Kind::message;

  Channel channel() const { return {Sequence{batch}, stage, chunk}; }
};
static_assert(sizeof(Header) == 24);

inline constexpr std::size_t longest_abort_reason = 1024;

// A send or a receive.
struct Operation {
  enum class State : std::uint8_t { unused, waiting, done, failed };
  State state = State::unused;
  Seat peer;
  std::byte* data = nullptr;  // memory of the operation; a send only reads it
  std::size_t bytes = 0;
  Channel channel;
  std::size_t actual_bytes = 0;  // size of the message that a receive got
};

}  // namespace hvd::transport::tcp
