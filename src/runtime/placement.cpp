#include "runtime/placement.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "base/settings/config.hpp"
#include "bootstrap/launch/launch.hpp"
#include "devices/of_rank/devices.hpp"
#include "native/posix/machine/affinity.hpp"
#include "topology/placement_report.hpp"
#include "topology/visible_gpus.hpp"

namespace hvd::runtime {
namespace {

using connections::DeviceCard;
using connections::DevicePeers;
using topology::Machine;
using topology::Placement;
using topology::PlacementRequest;
using topology::RankPlacement;

topology::GpuSharing sharing_of(const Config& config) {
  if (config.gpu_sharing == "always") return topology::GpuSharing::always;
  return config.gpu_sharing == "never" ? topology::GpuSharing::never : topology::GpuSharing::if_needed;
}

// The ranks of a node that have told something, in the order of their local ranks, and what they ask for together.
struct NodeRequest {
  std::vector<Rank> ranks;
  PlacementRequest request;
  bool has_gpus = false;

  bool asks_the_same(const NodeRequest& other) const {
    return std::ranges::equal(
        request.ranks, other.request.ranks, [](const topology::RankOnNode& one, const topology::RankOnNode& two) {
          return one.mask == two.mask && one.gpus.size() == two.gpus.size() && one.slot == two.slot;
        });
  }
};

std::vector<NodeRequest> requests_of_nodes(const World& world, const topology::Layout& layout, const DevicePeers& peers,
                                           topology::GpuSharing sharing) {
  std::vector<NodeRequest> nodes(static_cast<std::size_t>(layout.nodes));
  for (int rank = 0; rank < world.size(); ++rank) {
    const DeviceCard* card = peers.card_of(Rank{rank});
    if (card == nullptr) continue;
    NodeRequest& node = nodes[static_cast<std::size_t>(layout.node_of[static_cast<std::size_t>(rank)])];
    node.ranks.push_back(Rank{rank});
    node.request.ranks.push_back({card->mask, card->gpus, card->slot});
    node.request.sharing = sharing;
    node.has_gpus = node.has_gpus || !card->gpus.empty();
  }
  return nodes;
}

bool somebody_works_on_gpus(const World& world, const DevicePeers& peers) {
  for (int rank = 0; rank < world.size(); ++rank)
    if (const DeviceCard* card = peers.card_of(Rank{rank}); card != nullptr && !card->kinds.empty()) return true;
  return false;
}

// What is wrong with masks and GPU lists does not depend on the machine, so that every rank finds it for every node.
Status check_all_nodes(const World& world, const std::vector<NodeRequest>& nodes) {
  for (const NodeRequest& node : nodes) {
    if (!node.has_gpus) continue;
    auto placement = topology::place_ranks(Machine(), node.request);
    if (placement) continue;
    placement.error().message = "host " + world.member(node.ranks.front()).host + ": " + placement.error().message;
    return std::move(placement.error());
  }
  return {};
}

Machine read_this_machine(const Environment& environment, bool reports) {
  std::vector<std::string> notices;
  auto machine = topology::read_machine(environment, notices);
  if (machine) return std::move(*machine);
  if (reports) log::warning("processors are shared out without regard to the GPUs: " + machine.error().message);
  return {};
}

// With these flags the launcher that started this process does not bind ranks.
std::string flags_to_unbind(const Environment& environment) {
  auto launch = bootstrap::innermost_launch(environment);
  const char* flags = launch ? bootstrap::row_of(launch->launcher).flags_to_unbind : nullptr;
  return flags == nullptr ? "" : flags;
}

void bind(const Machine& machine, const OwnPlacement& own) {
  if (own.place.cpus == own.given || !machine.is_this_machine) return;
  if (Status bound = posix::bind_threads(own.given, own.place.cpus); !bound)
    log::warning("this rank is not bound near to its GPU: " + bound.error().message);
}

}  // namespace

std::string introduce_devices(const Environment& environment) {
  topology::VisibleGpus visible = topology::visible_gpus(environment);
  if (!visible.machine_has_gpus) return "";
  if (!visible.doubt.empty()) log::info(visible.doubt);
  auto mask = posix::affinity_of_all_threads();
  const auto slot = number_of(environment, "HOROVOD_ELASTIC_SLOT", -1);
  DeviceCard card{
      mask ? std::move(*mask) : posix::CpuMask(), std::move(visible.gpus), {}, slot ? static_cast<int>(*slot) : -1};
  const devices::Devices devices;
  for (int kind = 0; kind < device_kind_count; ++kind)
    if (const auto it = static_cast<DeviceKind>(kind); it != DeviceKind::host && devices.has(it))
      card.kinds.emplace_back(name_of(it));
  return card.encode();
}

Result<std::optional<OwnPlacement>> decide_placement(const World& world, const topology::Layout& layout,
                                                     const DevicePeers& peers, topology::GpuSharing sharing,
                                                     const Machine& machine, const std::string& unbinding) {
  std::vector<NodeRequest> nodes = requests_of_nodes(world, layout, peers, sharing);
  if (somebody_works_on_gpus(world, peers)) HVD_RETURN_IF_ERROR(check_all_nodes(world, nodes));
  NodeRequest& mine = nodes[static_cast<std::size_t>(layout.my_node)];
  auto me = std::ranges::find(mine.ranks, world.rank);
  if (!mine.has_gpus || me == mine.ranks.end()) return std::optional<OwnPlacement>();

  mine.request.flags_to_unbind = unbinding;
  // Nodes that ask for the same as the first one have the same notices: they are told once.
  const bool reports = me == mine.ranks.begin() && (layout.my_node == 0 || !mine.asks_the_same(nodes.front()));
  OwnPlacement own;
  own.given = mine.request.ranks[static_cast<std::size_t>(me - mine.ranks.begin())].mask;
  auto placement = topology::place_ranks(machine, mine.request);
  if (!placement) {
    own.place.cpus = own.given;
    if (reports) own.notices = {"ranks are not placed by their GPUs: " + placement.error().message};
    return std::optional(std::move(own));
  }
  own.place = std::move(placement->ranks[static_cast<std::size_t>(me - mine.ranks.begin())]);
  if (reports) own.notices = std::move(placement->notices);
  return std::optional(std::move(own));
}

Result<std::optional<RankPlacement>> take_place(const World& world, const topology::Layout& layout,
                                                const Environment& environment, const Config& config) {
  auto peers = DevicePeers::of(world);
  if (!peers) return std::move(peers.error());
  const bool is_concerned = peers->card_of(world.rank) != nullptr;
  Machine machine = is_concerned ? read_this_machine(environment, layout.node.me == Seat{0}) : Machine();
  auto own = decide_placement(world, layout, *peers, sharing_of(config), machine, flags_to_unbind(environment));
  if (!own) return std::move(own.error());
  if (!*own) return std::optional<RankPlacement>();
  for (const std::string& notice : (*own)->notices) log::warning(notice);
  if (config.bind) bind(machine, **own);
  else (*own)->place.cpus = (*own)->given;
  log::info(topology::describe_placement(machine, (*own)->place));
  return std::optional(std::move((*own)->place));
}

}  // namespace hvd::runtime
