#pragma once
// This rank's GPU and processors: what it tells the others at the meeting, and what it does once they have met.
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/settings/config.hpp"
#include "base/settings/environment.hpp"
#include "base/world.hpp"
#include "connections/device_peers.hpp"
#include "topology/layout.hpp"
#include "topology/machine.hpp"
#include "topology/placement.hpp"

namespace hvd::runtime {

// Returns the text for Member::devices. It is empty on a machine without GPUs.
std::string introduce_devices(const Environment& environment);

// What is decided for this rank. All ranks of a node decide the same for each of them, without a message.
struct OwnPlacement {
  topology::RankPlacement place;
  posix::CpuMask given;              // the processors that this rank had before
  std::vector<std::string> notices;  // of its node, from the rank that reports them
};
// Returns nothing if no rank of this node has told of a GPU. Fails, on all ranks of the job, if ranks of a node would
// share a GPU without leave or have masks that contradict each other, and if some rank can work on GPU memory. If none
// can, that is only a notice.
Result<std::optional<OwnPlacement>> decide_placement(const World& world, const topology::Layout& layout,
                                                     const connections::DevicePeers& peers,
                                                     topology::GpuSharing sharing, const topology::Machine& machine,
                                                     const std::string& flags_to_unbind);

// Decides with the machine that this process runs on, reports notices, and binds all threads of this process that the
// program has not bound itself. To be called after the meeting, before MPI and the devices are started.
Result<std::optional<topology::RankPlacement>> take_place(const World& world, const topology::Layout& layout,
                                                          const Environment& environment, const Config& config);

}  // namespace hvd::runtime
