#pragma once
// What the ranks of a group tell each other before they use NCCL, and what they conclude. NCCL itself hangs, or fails
// on some ranks alone, where they differ.
#include <cstdint>
#include <span>
#include <string>

#include "base/bytes.hpp"
#include "base/group.hpp"
#include "base/result.hpp"
#include "base/world.hpp"

namespace hvd::transport::over_nccl {

struct Card {
  std::string refusal;            // why this rank cannot use NCCL; empty if it can
  std::int32_t version = 0;       // of NCCL, as it counts
  std::string machine;            // by which NCCL knows a host
  std::string gpu;                // its UUID
  bool shares_gpu = false;        // NCCL was told that ranks of a host may share a GPU
  std::string id;                 // of the communicator; seat 0 draws it
  std::int64_t buffer_bytes = 0;  // of memory that this rank has for tensors that are packed

  Buffer encode() const;
  static Result<Card> decode(ConstBytes bytes);
  friend bool operator==(const Card&, const Card&) = default;
};

struct Agreement {
  std::string refusal;  // why the group does not use NCCL, with the rank that is the cause; empty if it does
  std::string id;
  std::int64_t buffer_bytes = 0;  // the least of all
};

// A pure function. `cards` are by seat.
Agreement agree(const World& world, const Group& group, std::span<const Card> cards);

}  // namespace hvd::transport::over_nccl
