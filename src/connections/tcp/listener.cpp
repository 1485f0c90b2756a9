#include "base/log.hpp"
#include "connections/net_peers.hpp"
#include "native/posix/sockets/endpoints.hpp"

namespace hvd::connections {

Result<NetListener> NetListener::open(const Config& config) {
  auto opened = posix::listen_for_peers(config.network_interfaces, config.port_range);
  if (!opened) return std::move(opened.error());
  if (!opened->trouble.empty()) log::info(opened->trouble + "; peers will use " + opened->endpoints);
  NetListener listener;
  listener.is_forced_ = !config.network_interfaces.empty();
  listener.endpoints_ = std::move(opened->endpoints);
  listener.sockets_ = std::move(opened->sockets);
  listener.addresses_ = std::move(opened->addresses);
  return listener;
}

}  // namespace hvd::connections
