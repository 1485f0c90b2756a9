#pragma once
// Decides for the ranks of a node which GPU, processors, memory node and network device each of them uses. A pure
// function of the machine and of what the ranks may use: all ranks of the node get the same answer.
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/visible_gpu.hpp"
#include "topology/machine.hpp"

namespace hvd::topology {

// What a rank may use.
struct RankOnNode {
  CpuMask mask;                  // processors
  std::vector<VisibleGpu> gpus;  // in the order in which the rank's program counts them
  int slot = -1;                 // the rank's slot on the node, which it keeps while its local rank changes; -1: none
};

enum class GpuSharing : std::uint8_t {
  if_needed,  // ranks share GPUs if there are fewer GPUs than ranks
  always,     // ranks also share a GPU if others are free that they do not see
  never,
};

struct PlacementRequest {
  std::vector<RankOnNode> ranks;  // by local rank
  GpuSharing sharing = GpuSharing::if_needed;
  // The launcher's flags with which it does not bind ranks, "srun --cpu-bind=none". Empty: not known.
  std::string flags_to_unbind;
};

struct RankPlacement {
  int gpu = -1;               // position in the rank's own list; -1: the rank has no GPU
  VisibleGpu identity;        // of that GPU
  CpuMask cpus;               // inside the rank's mask, never empty
  int cores = 0;              // how many of the machine's cores `cpus` belongs to
  bool shares_cores = false;  // there are fewer cores than ranks that may use them
  bool is_near_gpu = false;   // some of the processors are near to the GPU
  int memory_node = -1;       // the operating system's number of a NUMA node, that of the GPU if the rank is near to it
  std::string network;        // the nearest network device, by its name or else its bus id; empty: there is none
};

struct Placement {
  std::vector<RankPlacement> ranks;  // by local rank
  std::vector<std::string> notices;  // for the node, each a line
};

// GPUs:
//  - If all ranks see one list, local rank k uses the k-th GPU of it, also if its processors are far from that GPU.
//    (Programs call torch.cuda.set_device(hvd.local_rank()).) A notice then tells what mends it.
//  - If these ranks have slots, a rank uses the GPU of its slot: slot k the k-th, and further slots begin at the first
//    again. In an elastic job local ranks change, and a process cannot move to another GPU.
//  - Ranks whose list differs from that of the others use their own list: the first of such ranks the first GPU, unless
//    another rank needs that GPU.
//  - More ranks than GPUs share them, as evenly as their lists allow, with a notice. If there are enough GPUs, but two
//    ranks would have to share one, that is an error. `sharing` can change both.
// Processors:
//  - Ranks with the same mask share it (topology/pinning), near to their GPUs where this is possible. A mask that no
//    other rank has stays as it is.
//  - Masks that overlap without being equal are an error: it cannot be told which rank may use what. Not so with more
//    ranks than processors, and for ranks with slots, whose masks horovodrun has made for all slots of the node: these
//    keep their masks.
Result<Placement> place_ranks(const Machine& machine, const PlacementRequest& request);

}  // namespace hvd::topology
