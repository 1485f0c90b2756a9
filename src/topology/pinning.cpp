#include "topology/pinning.hpp"

#include "base/counted.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

namespace hvd::topology {
namespace {

constexpr int cache_level = 2;

// The unit that ranks get: a core, or a hardware thread if there are not enough cores.
struct Unit {
  CpuMask cpus;
  int border[cache_level + 1];  // package, NUMA node, cache: a border separates different numbers
};
using Units = std::span<const Unit>;

CpuMask union_of(Units units) {
  CpuMask mask;
  for (const Unit& unit : units) mask |= unit.cpus;
  return mask;
}

std::vector<Unit> units_within(const Machine& machine, const CpuMask& allowed) {
  std::vector<Unit> units;
  CpuMask unknown = allowed;
  for (const Core& core : machine.cores) {
    CpuMask usable = core.cpus & allowed;
    if (usable.empty()) continue;
    unknown -= usable;
    units.push_back({usable, {core.package, core.numa_node, core.cache}});
  }
  for (int cpu = unknown.first(); cpu >= 0; cpu = unknown.next(cpu))
    units.push_back({CpuMask::range(cpu, cpu), {-1, -1, -1}});
  return units;
}

std::vector<Unit> threads_of(Units units) {
  std::vector<Unit> threads;
  for (const Unit& unit : units)
    for (int cpu = unit.cpus.first(); cpu >= 0; cpu = unit.cpus.next(cpu)) {
      threads.push_back(unit);
      threads.back().cpus = CpuMask::range(cpu, cpu);
    }
  return threads;
}

// A run of neighbouring units, with the number of ranks that get them.
struct Part {
  std::size_t begin = 0;
  std::size_t units = 0;
  std::size_t ranks = 0;
};

std::vector<Part> split_at_borders(Units units, int level) {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (i == 0 || units[i].border[level] != units[i - 1].border[level]) parts.push_back({i, 0, 0});
    ++parts.back().units;
  }
  return parts;
}

// For at least as many ranks as parts: each further rank goes to the part that then has the largest share per rank.
void give_ranks_to_parts(std::vector<Part>& parts, std::size_t ranks) {
  for (; ranks > 0; --ranks) {
    auto best = std::max_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
      return a.units * (b.ranks + 1) < b.units * (a.ranks + 1);
    });
    ++best->ranks;
  }
}

// For fewer ranks than parts: neighbouring parts are joined into one group per rank. The groups are as even as
// possible.
std::vector<Part> give_parts_to_ranks(const std::vector<Part>& parts, std::size_t ranks, std::size_t units) {
  std::vector<Part> joined;
  std::size_t next = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    Part part{parts[next].begin, parts[next].units, 1};
    ++next;
    std::size_t wanted = units * (rank + 1) / ranks;
    while (next < parts.size() && parts.size() - next > ranks - rank - 1) {
      std::size_t end = part.begin + part.units;
      bool last = rank + 1 == ranks;
      bool nearer = end < wanted && end + parts[next].units <= wanted + (wanted - end);
      if (!last && !nearer) break;
      part.units += parts[next++].units;
    }
    joined.push_back(part);
  }
  return joined;
}

// True if the parts are even enough. To stay within a package or a NUMA node, shares may be a quarter smaller. To stay
// within a cache, they may not.
bool fair_enough(const std::vector<Part>& parts, std::size_t even_share, int level) {
  std::size_t quarters = level < cache_level ? 3 : 4;
  return std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
    return part.ranks == 0 || part.units / part.ranks * 4 >= even_share * quarters;
  });
}

// Appends one mask per rank. There must be at least as many units as ranks.
void share_out(Units units, std::size_t ranks, int level, std::vector<CpuMask>& masks) {
  if (ranks == 1) {
    masks.push_back(union_of(units));
    return;
  }
  for (; level <= cache_level; ++level) {
    std::vector<Part> parts = split_at_borders(units, level);
    if (parts.size() == 1) continue;
    if (parts.size() <= ranks) give_ranks_to_parts(parts, ranks);
    else parts = give_parts_to_ranks(parts, ranks, units.size());
    if (!fair_enough(parts, units.size() / ranks, level)) break;
    for (const Part& part : parts)
      if (part.ranks > 0) share_out(units.subspan(part.begin, part.units), part.ranks, level + 1, masks);
    return;
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::size_t begin = units.size() * rank / ranks;
    masks.push_back(union_of(units.subspan(begin, units.size() * (rank + 1) / ranks - begin)));
  }
}

// For fewer processors than ranks: all processors are divided into equal parts, and every rank gets the processors that
// its part touches.
std::vector<CpuMask> overlap(Units units, std::size_t ranks) {
  std::vector<CpuMask> masks;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::size_t begin = units.size() * rank / ranks;
    std::size_t end = (units.size() * (rank + 1) + ranks - 1) / ranks;
    masks.push_back(union_of(units.subspan(begin, end - begin)));
  }
  return masks;
}

// The ranks whose GPUs are near to the same units.
struct Neighbourhood {
  CpuMask cpus;
  std::vector<std::size_t> ranks;
};

std::vector<CpuMask> processors_near_gpus(const Machine& machine, const PinningRequest& request) {
  std::vector<CpuMask> near;
  for (const std::string& gpu : request.gpus) {
    const PciDevice* device = gpu.empty() ? nullptr : machine.device(gpu);
    near.push_back(device == nullptr ? CpuMask() : device->near & request.allowed);
    // If a GPU is near to all processors, it is not near to particular ones.
    if (near.back() == request.allowed) near.back() = CpuMask();
  }
  return near;
}

std::vector<Neighbourhood> neighbourhoods(const std::vector<CpuMask>& near) {
  std::vector<Neighbourhood> found;
  for (std::size_t rank = 0; rank < near.size(); ++rank) {
    if (near[rank].empty()) continue;
    Neighbourhood merged{near[rank], {}};
    for (auto at = found.begin(); at != found.end();) {
      if (!at->cpus.overlaps(merged.cpus)) {
        ++at;
        continue;
      }
      merged.cpus |= at->cpus;
      merged.ranks.insert(merged.ranks.end(), at->ranks.begin(), at->ranks.end());
      at = found.erase(at);
    }
    merged.ranks.push_back(rank);
    found.push_back(std::move(merged));
  }
  for (Neighbourhood& each : found)
    std::sort(each.ranks.begin(), each.ranks.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(near[a].first(), a) < std::pair(near[b].first(), b);
    });
  return found;
}

// Returns nothing if no GPU is near to particular units, or if a rank would not get a core of its own because of the
// GPUs.
std::optional<std::vector<CpuMask>> share_out_by_gpus(const Machine& machine, const PinningRequest& request,
                                                      Units units) {
  std::vector<CpuMask> near = processors_near_gpus(machine, request);
  std::vector<Neighbourhood> groups = neighbourhoods(near);
  if (groups.empty()) return std::nullopt;
  Neighbourhood rest;  // ranks without a GPU, or with one that is near to nothing, share the remaining units
  rest.cpus = request.allowed;
  for (std::size_t rank = 0; rank < near.size(); ++rank)
    if (near[rank].empty()) rest.ranks.push_back(rank);
  for (const Neighbourhood& group : groups) rest.cpus -= group.cpus;
  if (!rest.ranks.empty()) groups.push_back(std::move(rest));

  std::vector<CpuMask> masks(near.size());
  for (const Neighbourhood& group : groups) {
    std::vector<Unit> own;
    std::copy_if(units.begin(), units.end(), std::back_inserter(own),
                 [&](const Unit& unit) { return group.cpus.contains(unit.cpus); });
    if (own.size() < group.ranks.size()) return std::nullopt;
    std::vector<CpuMask> shares;
    share_out(own, group.ranks.size(), 0, shares);
    for (std::size_t i = 0; i < shares.size(); ++i) masks[group.ranks[i]] = std::move(shares[i]);
  }
  return masks;
}

bool near_to_gpus(const Machine& machine, const PinningRequest& request, const std::vector<CpuMask>& masks) {
  for (std::size_t rank = 0; rank < request.gpus.size(); ++rank) {
    if (request.gpus[rank].empty()) continue;
    const PciDevice* device = machine.device(request.gpus[rank]);
    if (device == nullptr || !device->near.contains(masks[rank])) return false;
  }
  return !request.gpus.empty();
}

std::string list_of(const char* one, const char* many, const std::set<int>& numbers) {
  std::string text = std::string(", ") + (numbers.size() == 1 ? one : many);
  const char* separator = " ";
  for (int number : numbers) {
    text += separator + std::to_string(number);
    separator = ",";
  }
  return text;
}

}  // namespace

Result<Pinning> pin(const Machine& machine, const PinningRequest& request) {
  if (request.local_size < 1)
    return Error(ErrorCode::invalid_argument,
                 "cannot bind " + std::to_string(request.local_size) + " ranks; expected at least 1");
  if (request.allowed.empty()) return Error(ErrorCode::invalid_argument, "there is no processor to bind ranks to");
  auto ranks = static_cast<std::size_t>(request.local_size);
  if (!request.gpus.empty() && request.gpus.size() != ranks)
    return Error(ErrorCode::invalid_argument, "expected one GPU for each of " + std::to_string(ranks) +
                                                  " ranks, found " + std::to_string(request.gpus.size()));
  Pinning pinning;
  std::vector<Unit> units = units_within(machine, request.allowed);
  if (ranks > units.size()) {
    pinning.shared = true;
    units = threads_of(units);
  }
  if (ranks == 1) {
    pinning.masks = {request.allowed};
  } else if (ranks > units.size()) {
    pinning.masks = overlap(units, ranks);
  } else if (auto by_gpus = share_out_by_gpus(machine, request, units)) {
    pinning.masks = std::move(*by_gpus);
  } else {
    share_out(units, ranks, 0, pinning.masks);
  }
  pinning.gpu_local = near_to_gpus(machine, request, pinning.masks);
  return pinning;
}

std::string describe_binding(const Machine& machine, const CpuMask& mask) {
  std::size_t cores = 0;
  std::set<int> packages;
  std::set<int> nodes;
  for (const Core& core : machine.cores) {
    if (!core.cpus.overlaps(mask)) continue;
    ++cores;
    if (core.package >= 0) packages.insert(machine.packages[static_cast<std::size_t>(core.package)].os_index);
    if (core.numa_node >= 0) nodes.insert(machine.numa_nodes[static_cast<std::size_t>(core.numa_node)].os_index);
  }
  std::string text = "cpus " + mask.to_string() + " (" + counted(cores, "core");
  if (!packages.empty()) text += list_of("package", "packages", packages);
  if (!nodes.empty()) text += list_of("NUMA node", "NUMA nodes", nodes);
  return text + ")";
}

}  // namespace hvd::topology
