#include "topology/placement_report.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "topology/pinning.hpp"

namespace hvd::topology {

namespace {

using Pair = std::pair<int, int>;  // of GPUs, the smaller number first

// The way between two GPUs, the best first. Of NVLink, more bandwidth is better.
struct Way {
  enum class Kind : std::uint8_t { nvlink, one_switch, one_numa_node, across, unknown } kind = Kind::unknown;
  std::int64_t megabytes_per_s = 0;
  friend bool operator<(const Way& one, const Way& other) {
    return std::pair(one.kind, -one.megabytes_per_s) < std::pair(other.kind, -other.megabytes_per_s);
  }
};

Way way_between(const Machine& machine, const PciDevice* one, const PciDevice* other) {
  if (one == nullptr || other == nullptr) return {};
  for (const NvLink& link : machine.nvlinks)
    if ((link.from == one->bus_id && link.to == other->bus_id) ||
        (link.from == other->bus_id && link.to == one->bus_id))
      return {Way::Kind::nvlink, link.megabytes_per_s};
  if (std::ranges::find_first_of(one->bridges, other->bridges) != one->bridges.end()) return {Way::Kind::one_switch};
  if (one->numa_node < 0 || other->numa_node < 0) return {};
  return {one->numa_node == other->numa_node ? Way::Kind::one_numa_node : Way::Kind::across};
}

std::string name_of(const Way& way) {
  switch (way.kind) {
    case Way::Kind::nvlink: return "NVLink, " + std::to_string((way.megabytes_per_s + 500) / 1000) + " GB/s,";
    case Way::Kind::one_switch: return "one PCIe switch";
    case Way::Kind::one_numa_node: return "PCIe in one NUMA node";
    case Way::Kind::across: return "PCIe across NUMA nodes";
    case Way::Kind::unknown: return "at unknown places";
  }
  return "";
}

// Returns "among GPUs 0, 1, 2 and 3, 4, 5" if all GPUs that the pairs join are pairs, else "between GPUs 0-3, 1-4".
std::string text_of(const std::set<Pair>& pairs) {
  std::vector<std::set<int>> groups;
  for (const auto& [one, other] : pairs) {
    auto place = std::ranges::find_if(groups, [&](const auto& it) { return it.contains(one) || it.contains(other); });
    if (place == groups.end()) place = groups.insert(place, {{}});
    place->insert({one, other});
  }
  std::size_t complete = 0;
  for (const auto& group : groups) complete += group.size() * (group.size() - 1) / 2;
  std::string text;
  if (complete != pairs.size()) {
    for (const auto& [one, other] : pairs)
      text += (text.empty() ? "between GPUs " : ", ") + std::to_string(one) + "-" + std::to_string(other);
    return text;
  }
  for (const auto& group : groups) {
    text += text.empty() ? "among GPUs " : " and ";
    for (int gpu : group) text += (gpu == *group.begin() ? "" : ", ") + std::to_string(gpu);
  }
  return text;
}

}  // namespace

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
  std::map<int, const PciDevice*> gpus;
  for (const RankPlacement& place : ranks)
    if (place.gpu >= 0) gpus[place.gpu] = machine.device(place.identity.bus_id);
  if (gpus.size() < 2) return "";
  std::map<Way, std::set<Pair>> ways;
  for (auto one = gpus.begin(); one != gpus.end(); ++one)
    for (auto other = std::next(one); other != gpus.end(); ++other)
      ways[way_between(machine, one->second, other->second)].insert({one->first, other->first});
  std::string text = "links: ";
  for (auto way = ways.begin(); way != ways.end(); ++way) {
    if (way != ways.begin()) text += "; ";
    const bool is_rest = std::next(way) == ways.end() && ways.size() > 1;
    text += name_of(way->first) + (is_rest ? " between all others" : " " + text_of(way->second));
  }
  if (!machine.knows_nvlinks)
    text +=
        "; NVLink is not known here: hwloc tells it where its NVML plugin is installed, and nvidia-smi topo -m does";
  return text;
}

}  // namespace hvd::topology
