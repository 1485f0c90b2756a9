#include "runtime/session.hpp"

#include <optional>

#include "base/log.hpp"
#include "bootstrap/meeting.hpp"
#include "topology/layout.hpp"
#include "transport/mpi_peers.hpp"
#include "transport/net_peers.hpp"
#include "transport/node_peers.hpp"

namespace hvd::runtime {

Status Session::join(const Environment& environment, const Config& config) {
  auto chosen = bootstrap::choose(environment, config, notices_);
  if (!chosen) return chosen.error();
  chosen_ = std::move(*chosen);
  log::set_rank(chosen_->identity.rank.value);
  if (chosen_->identity.rank == Rank{0})
    for (const bootstrap::Notice& notice : notices_) log::warning(notice);
  return {};
}

Result<std::unique_ptr<Runtime>> Session::start(const Environment& environment) {
  std::vector<std::string> warnings;
  auto config = Config::from(environment, warnings);
  if (!config) return config.error();
  log::configure(config->log);
  if (!chosen_) HVD_RETURN_IF_ERROR(join(environment, *config));
  const bootstrap::Identity& identity = chosen_->identity;
  if (identity.rank == Rank{0} && epoch_ == 0)
    for (const std::string& warning : warnings) log::warning(warning);

  auto deadline = Deadline::after(std::chrono::milliseconds(static_cast<std::int64_t>(config->start_timeout_s * 1000)));
  auto listener = transport::PeerListener::open();
  if (!listener) return listener.error();
  // Whether the job has other nodes is known when the ranks have met, who must know each other's endpoints by then.
  std::optional<transport::NetListener> net_listener;
  if (identity.size > 1) {
    auto opened = transport::NetListener::open(*config);
    if (!opened) return opened.error();
    net_listener = std::move(*opened);
  }
  Member me = bootstrap::introduce_myself(environment, listener->address());
  if (net_listener) me.endpoints = net_listener->endpoints();
  auto world = bootstrap::meet(*chosen_->bootstrap, identity, epoch_++, me, deadline);
  if (!world) {
    // The others may have gone the way that was closed to this rank.
    for (const bootstrap::Notice& notice : notices_) world.error().message += "; " + notice;
    return world.error();
  }

  Runtime::Parts parts;
  parts.config = std::move(*config);
  parts.world = std::move(*world);
  if (transport::MpiPeers::is_wanted(parts.world, parts.config, false)) {
    auto mpi =
        transport::MpiPeers::meet({&parts.world, &parts.config, &environment, nullptr}, *chosen_->bootstrap, deadline);
    if (!mpi) return mpi.error();
    parts.mpi = std::move(*mpi);
  }
  topology::Layout layout = topology::layout_of(parts.world);
  if (layout.node.size() > 1) {
    auto peers = transport::NodePeers::meet(parts.world, layout.node, std::move(*listener), deadline);
    if (!peers) return peers.error();
    parts.peers = std::move(*peers);
  }
  parts.net = std::move(net_listener);
  return Runtime::start(std::move(parts), deadline);
}

}  // namespace hvd::runtime
