#include "launcher/agent/binding.hpp"

#include <algorithm>

#include "topology/pinning.hpp"
#include "topology/placement.hpp"
#include "topology/visible_gpus.hpp"

namespace hvd::launcher {
namespace {

std::vector<Share> unbound(int ranks, const std::string& why, std::vector<std::string>& notices) {
  notices.push_back("the ranks are not bound to processors: " + why);
  Share share;
  share.description = "not bound";
  return std::vector<Share>(static_cast<std::size_t>(ranks), share);
}

}  // namespace

std::vector<Share> share_processors(int ranks, const Environment& environment, std::vector<std::string>& notices) {
  auto allowed = posix::affinity();
  if (!allowed) return unbound(ranks, allowed.error().message, notices);
  auto machine = topology::read_machine(environment, notices);
  if (!machine) return unbound(ranks, machine.error().message, notices);
  if (!machine->is_this_machine) return unbound(ranks, machine->source + " describes another machine", notices);
  topology::PlacementRequest request;
  request.ranks.assign(static_cast<std::size_t>(ranks), {*allowed, topology::visible_gpus(environment).gpus});
  auto placement = topology::place_ranks(*machine, request);
  if (!placement) return unbound(ranks, placement.error().message, notices);

  std::vector<Share> shares;
  for (const topology::RankPlacement& place : placement->ranks) {
    Share share;
    share.cpus = place.cpus;
    share.threads = place.shares_cores ? 1 : std::max(1, place.cores);
    share.description =
        topology::describe_binding(*machine, place.cpus) + (place.shares_cores ? ", shared with other ranks" : "");
    shares.push_back(std::move(share));
  }
  return shares;
}

}  // namespace hvd::launcher
