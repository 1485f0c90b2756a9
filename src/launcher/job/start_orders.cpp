#include "launcher/job/start_orders.hpp"

#include <unistd.h>

#include "launcher/agent/rank_environment.hpp"

namespace hvd::launcher {

Prepare prepare_order(const JobOptions& options, const HostLink& host, std::size_t at, const Lifelines* lifelines) {
  Prepare order;
  order.ranks = options.site ? 0 : static_cast<std::int32_t>(host.ranks.size());
  order.grace_ms = static_cast<std::int32_t>(options.grace.count());
  order.tells_bindings = options.verbose;
  if (host.is_here) return order;
  order.lifeline = lifelines->addresses();
  order.lifeline_token = lifelines->token(at);
  order.lifeline_patience_ms = static_cast<std::int32_t>(options.network.lifeline_patience.count());
  // The agent gives up sooner than horovodrun, so that it can report why.
  order.dial_ms = static_cast<std::int32_t>(options.network.start_timeout.count() / 2);
  return order;
}

Result<StartRank> start_order(const JobOptions& options, const Placement& placement, bool is_here,
                              const Environment& environment, WireUp& wire_up) {
  auto wiring = wire_up.variables_for(placement.rank);
  if (!wiring) return wiring.error();
  StartRank order;
  order.rank = placement.rank;
  order.title = "rank " + std::to_string(placement.rank.value);
  order.program = options.program;
  order.command = options.command;
  order.environment = environment_of(
      environment, {placement, static_cast<int>(options.placements.size()), options.variables, std::move(*wiring)});
  order.folder = working_folder();
  order.local_rank = placement.local_rank;
  if (placement.rank.value == 0) order.input = is_here ? InputFrom::agent : InputFrom::horovodrun;
  return order;
}

std::string working_folder() {
  char folder[4096];
  return ::getcwd(folder, sizeof folder) == nullptr ? std::string() : folder;
}

}  // namespace hvd::launcher
