#pragma once
// What the ranks of a group tell each other before they use NCCL, and what they conclude. NCCL itself hangs, or fails
// on some ranks alone, where they differ.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/group.hpp"
#include "base/result.hpp"
#include "base/world.hpp"

namespace hvd::transport::over_nccl {

struct Card {
  std::string refusal;            // why this rank cannot use NCCL; empty if it can
  std::int32_t version = 0;       // of NCCL, as it counts
  std::string machine;            // by which NCCL knows a host
  std::string gpu;                // its bus id, by which NCCL finds ranks that share one
  std::string uuid;               // of the GPU, or of the part of it (MIG) that this rank has
  bool shares_gpu = false;        // NCCL was told that ranks of a host may share a GPU
  bool sets_nvls = false;         // its user has decided where NVLS is used
  std::string id;                 // of the communicator; the seats that draws_id() names draw one
  std::int64_t buffer_bytes = 0;  // of memory that this rank has for tensors that are packed

  Buffer encode() const;
  static Result<Card> decode(ConstBytes bytes);
  friend bool operator==(const Card&, const Card&) = default;
};

struct Agreement {
  std::string refusal;  // why the group does not use NCCL, with the rank that is the cause; empty if it does
  std::vector<std::string> ids;
  std::int64_t buffer_bytes = 0;  // the least of all
  bool without_nvls = false;
};

// At the start of a communicator all ranks connect to the one that has drawn its id. Newer libraries take several ids,
// and share the ranks out among them.
inline constexpr int ranks_of_an_id = 128;
constexpr bool draws_id(int seat, bool can_have_several) noexcept {
  return seat == 0 || (can_have_several && seat % ranks_of_an_id == 0);
}

// Whether the group leaves out ranks of each of its nodes. There may be many such groups on a node, so they leave the
// few places for NVLS (128 on an NVSwitch) to the groups of whole nodes.
bool is_part_of_its_nodes(const World& world, const Group& group);

// A pure function. `cards` are by seat.
Agreement agree(const World& world, const Group& group, std::span<const Card> cards);

}  // namespace hvd::transport::over_nccl
