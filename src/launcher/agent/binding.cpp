#include "launcher/agent/binding.hpp"

#include <algorithm>

#include "topology/pinning.hpp"

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
  auto pinning = topology::pin(*machine, {*allowed, ranks, {}});
  if (!pinning) return unbound(ranks, pinning.error().message, notices);

  std::vector<Share> shares;
  for (const topology::CpuMask& mask : pinning->masks) {
    Share share;
    share.cpus = mask;
    auto cores = std::count_if(machine->cores.begin(), machine->cores.end(),
                               [&](const topology::Core& core) { return core.cpus.overlaps(mask); });
    share.threads = pinning->shared ? 1 : std::max(1, static_cast<int>(cores));
    share.description =
        topology::describe_binding(*machine, mask) + (pinning->shared ? ", shared with other ranks" : "");
    shares.push_back(std::move(share));
  }
  return shares;
}

}  // namespace hvd::launcher
