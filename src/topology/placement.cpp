#include "topology/placement.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/counted.hpp"
#include "base/gpu_makes.hpp"
#include "topology/pinning.hpp"

namespace hvd::topology {
namespace {

// The parts of one GPU have the same bus id. A UUID may be hidden from some ranks, a bus id is not.
std::string identity_of(const VisibleGpu& gpu) {
  return gpu.uuid.starts_with("MIG-") || gpu.bus_id.empty() ? gpu.uuid : gpu.bus_id;
}

std::string name_of(const VisibleGpu& gpu) {
  return gpu.bus_id.empty() ? gpu.uuid : gpu.bus_id + (gpu.uuid.starts_with("MIG-") ? " (" + gpu.uuid + ")" : "");
}

std::string local_rank(std::size_t rank) {
  return "local rank " + std::to_string(rank);
}

// Which rank uses which GPU: each rank takes the next of its own list that is free. If none is free, ranks that came
// before move to other GPUs of theirs, if they can.
class Assignment {
 public:
  explicit Assignment(const std::vector<RankOnNode>& ranks) : ranks_(ranks), chosen(ranks.size(), -1) {
    std::map<std::vector<std::string>, std::size_t> seen;  // how many ranks have had this list so far
    for (const RankOnNode& rank : ranks) {
      std::vector<std::string> list;
      for (const VisibleGpu& gpu : rank.gpus) list.push_back(identity_of(gpu));
      all_.insert(list.begin(), list.end());
      with_gpus_ += list.empty() ? 0 : 1;
      const std::size_t number = rank.slot >= 0 ? static_cast<std::size_t>(rank.slot) : seen[list]++;
      first_.push_back(list.empty() ? 0 : number % list.size());
      lists_.push_back(std::move(list));
    }
  }

  std::size_t gpus() const { return all_.size(); }
  std::size_t ranks_with_gpus() const { return with_gpus_; }

  // Lets no more than `most` ranks use one GPU. Returns a rank for which this is not possible, or -1.
  int assign(std::size_t most) {
    users_.clear();
    std::fill(chosen.begin(), chosen.end(), -1);
    for (std::size_t rank = 0; rank < lists_.size(); ++rank) {
      std::set<std::string> asked;
      if (!lists_[rank].empty() && !find(rank, most, asked)) return static_cast<int>(rank);
    }
    return -1;
  }

  // The first rank besides `rank` that uses a GPU of its list.
  std::size_t rival_of(std::size_t rank) const {
    for (std::size_t other = 0; other < rank; ++other)
      if (chosen[other] >= 0 &&
          std::ranges::count(lists_[rank], lists_[other][static_cast<std::size_t>(chosen[other])]))
        return other;
    return rank;
  }

 private:
  bool find(std::size_t rank, std::size_t most, std::set<std::string>& asked) {
    const std::vector<std::string>& list = lists_[rank];
    for (bool by_moving : {false, true}) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        std::size_t at = (first_[rank] + i) % list.size();
        std::vector<std::size_t>& users = users_[list[at]];
        if (users.size() < most) {
          users.push_back(rank);
        } else {
          if (!by_moving || !asked.insert(list[at]).second) continue;
          auto moves = std::ranges::find_if(users, [&](std::size_t user) { return find(user, most, asked); });
          if (moves == users_[list[at]].end()) continue;
          *moves = rank;
        }
        chosen[rank] = static_cast<int>(at);
        return true;
      }
    }
    return false;
  }

  const std::vector<RankOnNode>& ranks_;
  std::vector<std::vector<std::string>> lists_;
  std::vector<std::size_t> first_;  // where in its list a rank begins to look
  std::set<std::string> all_;
  std::size_t with_gpus_ = 0;
  std::map<std::string, std::vector<std::size_t>> users_;

 public:
  std::vector<int> chosen;  // for each rank a position in its list
};

Error refuse_to_share(const PlacementRequest& request, const Assignment& assignment, std::size_t rank) {
  std::size_t rival = assignment.rival_of(rank);
  auto at = static_cast<std::size_t>(assignment.chosen[rival]);
  return {ErrorCode::invalid_argument,
          local_rank(rival) + " and " + local_rank(rank) + " of this node would share the GPU " +
              name_of(request.ranks[rival].gpus[at]) +
              ", although the ranks of this node see enough GPUs together: expected a GPU for each of them. Correct " +
              visibility_variables() +
              ", or the launcher's GPU flags, so that all ranks see the same GPUs, or each its own"};
}

Error forbid_sharing(const std::string& shared) {
  return {ErrorCode::invalid_argument, shared + ", which is forbidden: start at most one rank per GPU, or allow it"};
}

std::string notice_of_sharing(const std::string& shared, std::size_t most) {
  return shared + ", up to " + counted(most, "rank") +
         " on one: they wait for each other, and each needs its own part of the memory";
}

// True if all ranks have slots and see one list.
bool have_slots(const std::vector<RankOnNode>& ranks) {
  return std::ranges::all_of(ranks, [&](const RankOnNode& rank) {
    return rank.slot >= 0 && std::ranges::equal(rank.gpus, ranks.front().gpus, {}, &identity_of, &identity_of);
  });
}

// A rank does not move to another GPU because others have ended: ranks may share a GPU while another one is free.
Status choose_gpus_of_slots(const PlacementRequest& request, Placement& placement) {
  const std::size_t gpus = request.ranks.front().gpus.size();
  std::vector<std::size_t> users(gpus), first_user(gpus);
  std::string pair;  // the first two ranks with one GPU
  for (std::size_t rank = 0; rank < request.ranks.size(); ++rank) {
    RankPlacement& place = placement.ranks[rank];
    const std::size_t gpu = static_cast<std::size_t>(request.ranks[rank].slot) % gpus;
    place.gpu = static_cast<int>(gpu);
    place.identity = request.ranks[rank].gpus[gpu];
    if (users[gpu] == 0) first_user[gpu] = rank;
    if (++users[gpu] == 2 && pair.empty())
      pair = "slots " + std::to_string(request.ranks[first_user[gpu]].slot) + " and " +
             std::to_string(request.ranks[rank].slot) + " have the GPU " + name_of(place.identity);
  }
  const std::size_t most = *std::ranges::max_element(users);
  const std::string shared = counted(request.ranks.size(), "rank") + " of this node share " + counted(gpus, "GPU");
  if (most > 1 && request.sharing == GpuSharing::never)
    return Error(
        ErrorCode::invalid_argument,
        shared + " (" + pair + "), which is forbidden: give a node no more slots than it has GPUs, or allow it");
  if (most > 1) placement.notices.push_back(notice_of_sharing(shared, most));
  return {};
}

Status choose_gpus(const PlacementRequest& request, Placement& placement) {
  Assignment assignment(request.ranks);
  if (assignment.gpus() == 0) return {};
  if (have_slots(request.ranks)) return choose_gpus_of_slots(request, placement);
  std::size_t ranks = assignment.ranks_with_gpus();
  std::size_t even = (ranks + assignment.gpus() - 1) / assignment.gpus();
  std::size_t most = 1;
  int left_over = assignment.assign(most);
  std::string shared = counted(ranks, "rank") + " of this node share " + counted(assignment.gpus(), "GPU");
  if (left_over >= 0) {
    if (request.sharing == GpuSharing::never && even > 1) return forbid_sharing(shared);
    if (even == 1 && request.sharing != GpuSharing::always)
      return refuse_to_share(request, assignment, static_cast<std::size_t>(left_over));
    while (left_over >= 0) left_over = assignment.assign(++most);
    placement.notices.push_back(notice_of_sharing(shared, most));
  }
  for (std::size_t rank = 0; rank < request.ranks.size(); ++rank) {
    RankPlacement& place = placement.ranks[rank];
    place.gpu = assignment.chosen[rank];
    if (place.gpu >= 0) place.identity = request.ranks[rank].gpus[static_cast<std::size_t>(place.gpu)];
  }
  return {};
}

// True if horovodrun has divided too few processors (topology/pinning): each rank has a mask of its own choice, and
// neighbours' masks overlap. In an elastic job this may still be so when ranks have ended.
bool may_overlap(const std::vector<RankOnNode>& ranks) {
  CpuMask all;
  for (const RankOnNode& rank : ranks) all = all | rank.mask;
  return std::cmp_greater(ranks.size(), all.count()) ||
         std::ranges::all_of(ranks, [](const RankOnNode& it) { return it.slot >= 0; });
}

Status share_processors(const Machine& machine, const PlacementRequest& request, Placement& placement) {
  const bool is_overlap_allowed = may_overlap(request.ranks);
  std::vector<bool> is_done(request.ranks.size(), false);
  for (std::size_t rank = 0; rank < request.ranks.size(); ++rank) {
    if (is_done[rank]) continue;
    const CpuMask& mask = request.ranks[rank].mask;
    if (mask.empty()) return Error(ErrorCode::invalid_argument, local_rank(rank) + " may use no processor");
    PinningRequest group{mask, 0, {}};
    std::vector<std::size_t> members;
    bool is_shared_with_others = false;
    for (std::size_t other = 0; other < request.ranks.size(); ++other) {
      if (request.ranks[other].mask != mask) {
        if (!request.ranks[other].mask.overlaps(mask)) continue;
        is_shared_with_others = true;
        if (is_overlap_allowed) continue;
        return Error(ErrorCode::invalid_argument,
                     "the launcher's masks contradict each other: " + local_rank(rank) + " of this node may use cpus " +
                         mask.to_string() + ", " + local_rank(other) + " cpus " +
                         request.ranks[other].mask.to_string() +
                         ". Expected masks that are equal or have nothing in common; start the ranks unbound" +
                         (request.flags_to_unbind.empty() ? "" : " (" + request.flags_to_unbind + ")"));
      }
      is_done[other] = true;
      members.push_back(other);
      group.gpus.push_back(placement.ranks[other].identity.bus_id);
    }
    group.local_size = static_cast<int>(members.size());
    auto pinning = pin(machine, group);
    if (!pinning) return std::move(pinning.error());
    for (std::size_t i = 0; i < members.size(); ++i) {
      placement.ranks[members[i]].cpus = std::move(pinning->masks[i]);
      placement.ranks[members[i]].shares_cores = pinning->shared || is_shared_with_others;
    }
  }
  return {};
}

// One notice for all ranks whose processors are far from their GPU.
void notice_far_ranks(const Machine& machine, const PlacementRequest& request, Placement& placement) {
  std::size_t far = 0;
  std::string first;
  for (std::size_t rank = 0; rank < placement.ranks.size(); ++rank) {
    const RankPlacement& place = placement.ranks[rank];
    const PciDevice* gpu = place.gpu < 0 ? nullptr : machine.device(place.identity.bus_id);
    if (gpu == nullptr || gpu->near.overlaps(request.ranks[rank].mask) || far++ > 0) continue;
    first = local_rank(rank) + " has cpus " + place.cpus.to_string() + ", its GPU " + gpu->bus_id +
            " is near to cpus " + gpu->near.to_string();
  }
  if (far == 0) return;
  placement.notices.push_back("the launcher has bound " + counted(far, "rank") +
                              " of this node to processors that are far from the rank's GPU (" + first +
                              "): start the ranks unbound" +
                              (request.flags_to_unbind.empty() ? "" : " (" + request.flags_to_unbind + ")") +
                              ", then each binds itself near to its GPU");
}

int bus_of(std::string_view bus_id) {
  std::size_t colon = bus_id.find(':');
  return colon == std::string_view::npos ? 0 : static_cast<int>(std::strtol(&bus_id[colon + 1], nullptr, 16));
}

// How far a network device is from a rank's GPU; without a GPU, from its processors. Devices that are equally near are
// used in turn. Of these, those with neighbouring bus numbers are often behind one switch.
class Distance {
 public:
  Distance(const Machine& machine, const RankPlacement& place)
      : machine_(machine), gpu_(place.gpu < 0 ? nullptr : machine.device(place.identity.bus_id)), place_(place) {}

  std::tuple<bool, bool, bool, int, int> to(const PciDevice& device, int users) const {
    const CpuMask& from = gpu_ != nullptr ? gpu_->near : place_.cpus;
    bool is_other_domain = gpu_ == nullptr || gpu_->bus_id.substr(0, gpu_->bus_id.find(':')) !=
                                                  device.bus_id.substr(0, device.bus_id.find(':'));
    int buses = is_other_domain ? 0 : std::abs(bus_of(device.bus_id) - bus_of(gpu_->bus_id));
    return {!device.near.overlaps(from), package_of(device.near) != package_of(from), !is_fabric(device), users, buses};
  }

 private:
  static bool is_fabric(const PciDevice& device) {
    return std::ranges::any_of(device.names, [](const std::string& name) {
      return name.starts_with("mlx") || name.starts_with("hsn") || name.starts_with("ib") || name.starts_with("cxi") ||
             name.starts_with("hfi") || name.starts_with("efa") || name.starts_with("rdmap");
    });
  }
  int package_of(const CpuMask& cpus) const {
    for (std::size_t i = 0; i < machine_.packages.size(); ++i)
      if (machine_.packages[i].cpus.contains(cpus)) return static_cast<int>(i);
    return -1;
  }

  const Machine& machine_;
  const PciDevice* gpu_;
  const RankPlacement& place_;
};

void choose_networks(const Machine& machine, Placement& placement) {
  std::vector<int> users(machine.devices.size(), 0);
  for (RankPlacement& place : placement.ranks) {
    Distance distance(machine, place);
    int best = -1;
    for (std::size_t i = 0; i < machine.devices.size(); ++i) {
      if (machine.devices[i].kind != PciDevice::Kind::network) continue;
      auto b = static_cast<std::size_t>(best);
      if (best < 0 || distance.to(machine.devices[i], users[i]) < distance.to(machine.devices[b], users[b]))
        best = static_cast<int>(i);
    }
    if (best < 0) return;
    const PciDevice& device = machine.devices[static_cast<std::size_t>(best)];
    ++users[static_cast<std::size_t>(best)];
    place.network = device.names.empty() ? device.bus_id : device.names.front();
  }
}

// The memory node of the GPU if the rank has processors there, else the first that the rank has processors of.
void describe(const Machine& machine, RankPlacement& place) {
  for (const Core& core : machine.cores) place.cores += core.cpus.overlaps(place.cpus) ? 1 : 0;
  const PciDevice* gpu = place.gpu < 0 ? nullptr : machine.device(place.identity.bus_id);
  place.is_near_gpu = gpu != nullptr && gpu->near.overlaps(place.cpus);
  const NumaNode* found = nullptr;
  for (const NumaNode& node : machine.numa_nodes)
    if (found == nullptr && node.cpus.overlaps(place.cpus)) found = &node;
  if (gpu != nullptr && gpu->numa_node >= 0) {
    const NumaNode& near = machine.numa_nodes[static_cast<std::size_t>(gpu->numa_node)];
    if (near.cpus.overlaps(place.cpus)) found = &near;
  }
  if (found != nullptr) place.memory_node = found->os_index;
}

}  // namespace

Result<Placement> place_ranks(const Machine& machine, const PlacementRequest& request) {
  if (request.ranks.empty()) return Error(ErrorCode::invalid_argument, "expected at least 1 rank to place, found none");
  Placement placement;
  placement.ranks.resize(request.ranks.size());
  HVD_RETURN_IF_ERROR(choose_gpus(request, placement));
  HVD_RETURN_IF_ERROR(share_processors(machine, request, placement));
  for (RankPlacement& place : placement.ranks) describe(machine, place);
  notice_far_ranks(machine, request, placement);
  choose_networks(machine, placement);
  return placement;
}

}  // namespace hvd::topology
