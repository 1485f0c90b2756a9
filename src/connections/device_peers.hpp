#pragma once
// What the ranks of a job must know of each other's devices. Each rank tells it when the ranks meet (Member::devices).
// A rank on a machine without GPUs tells nothing.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/visible_gpu.hpp"
#include "base/world.hpp"
#include "native/posix/machine/affinity.hpp"

namespace hvd::connections {

// What one rank tells. It travels as text.
struct DeviceCard {
  posix::CpuMask mask;             // the processors that the rank's launcher has given to it
  std::vector<VisibleGpu> gpus;    // in the order in which its program counts them
  std::vector<std::string> kinds;  // the kinds of device memory that this rank can work on: "cuda"
  std::int32_t slot = -1;          // in an elastic job: its slot on its node, which it keeps; -1: none

  std::string encode() const;
  static Result<DeviceCard> decode(std::string_view text);
  friend bool operator==(const DeviceCard&, const DeviceCard&) = default;
};

class DevicePeers {
 public:
  // A pure function of the members. Fails, equally on all ranks, if a card came damaged.
  static Result<DevicePeers> of(const World& world);

  // Null if the rank is on a machine without GPUs.
  const DeviceCard* card_of(Rank rank) const {
    const auto at = static_cast<std::size_t>(rank.value);
    return at < cards_.size() && cards_[at] ? &*cards_[at] : nullptr;
  }
  // Returns the first of these ranks that cannot work on memory of this kind: then the tensors of all of them go
  // through the host. -1 if all can, or if no rank of the job has told anything.
  Rank first_without(std::span<const Rank> ranks, std::string_view kind) const;

 private:
  std::vector<std::optional<DeviceCard>> cards_;  // by rank; empty if no rank has told anything
};

}  // namespace hvd::connections
