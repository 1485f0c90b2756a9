#include "topology/placement_report.hpp"

#include <map>
#include <set>

#include "topology/pinning.hpp"

namespace hvd::topology {

std::string describe_placement(const Machine& machine, const RankPlacement& place) {
  std::string text = "no GPU";
  if (place.gpu >= 0)
    text = "GPU " + std::to_string(place.gpu) + " (" +
           (place.identity.bus_id.empty() ? place.identity.uuid : place.identity.bus_id) + ")";
  text += ", " + describe_binding(machine, place.cpus);
  if (place.memory_node >= 0) text += ", memory of NUMA node " + std::to_string(place.memory_node);
  return place.network.empty() ? text : text + ", network device " + place.network;
}

std::string describe_gpu_links(const Machine& machine, std::span<const RankPlacement> ranks) {
  std::map<int, std::set<int>> by_numa_node;
  std::size_t gpus = 0;
  for (const RankPlacement& place : ranks) {
    if (place.gpu < 0) continue;
    const PciDevice* device = machine.device(place.identity.bus_id);
    const int node = device == nullptr || device->numa_node < 0
                         ? -1
                         : machine.numa_nodes[static_cast<std::size_t>(device->numa_node)].os_index;
    gpus += by_numa_node[node].insert(place.gpu).second ? 1 : 0;
  }
  if (gpus < 2) return "";
  std::string text;
  for (const auto& [node, near] : by_numa_node) {
    std::string list;
    for (int gpu : near) list += (list.empty() ? "" : ", ") + std::to_string(gpu);
    text += (text.empty() ? "" : "; ") + std::string(near.size() > 1 ? "GPUs " : "GPU ") + list +
            (node < 0 ? " at an unknown place" : " near NUMA node " + std::to_string(node));
  }
  return "links by PCIe: " + text + "; NVLink is unknown here, since only the driver knows it (nvidia-smi topo -m)";
}

}  // namespace hvd::topology
