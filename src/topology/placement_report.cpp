#include "topology/placement_report.hpp"

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

}  // namespace hvd::topology
