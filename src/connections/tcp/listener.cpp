#include <sys/random.h>

#include "base/log.hpp"
#include "connections/net_peers.hpp"
#include "native/posix/endpoints.hpp"
#include "native/posix/tcp_socket.hpp"

namespace hvd::connections {
namespace {

// Returns a random start in the port range. Ranks of one node then do not all try the same ports.
unsigned draw_start(unsigned below) {
  unsigned drawn = 0;
  [[maybe_unused]] auto got = ::getrandom(&drawn, sizeof drawn, 0);
  return drawn % below;
}

// Returns an empty descriptor if all ports of the range are taken.
Result<posix::FileDescriptor> listen_in_range(const posix::TcpAddress& address, const PortRange& range) {
  if (range.first == 0) return posix::listen_on_tcp(address);
  auto ports = static_cast<unsigned>(range.last - range.first + 1);
  unsigned start = draw_start(ports);
  for (unsigned turn = 0; turn < ports; ++turn) {
    auto port = static_cast<std::uint16_t>(range.first + (start + turn) % ports);
    auto socket = posix::listen_on_tcp(address.with_port(port));
    if (!socket || *socket) return socket;
  }
  return posix::FileDescriptor();
}

Error no_port_left(const posix::TcpAddress& address, const PortRange& range) {
  return {ErrorCode::system,
          "HOROVOD_PORT_RANGE=" + std::to_string(range.first) + "-" + std::to_string(range.last) +
              ": no port of it is free on " + address.host() +
              "; every rank of a node needs one, and other programs or jobs may hold some: widen the "
              "range"};
}

}  // namespace

Result<NetListener> NetListener::open(const Config& config) {
  auto interfaces = posix::interfaces();
  if (!interfaces) return std::move(interfaces.error());
  auto addresses = posix::usable_addresses(*interfaces, config.network_interfaces);
  if (!addresses) return std::move(addresses.error());
  NetListener listener;
  listener.is_forced_ = !config.network_interfaces.empty();
  std::optional<Error> trouble;
  for (const posix::InterfaceAddress& entry : *addresses) {
    auto socket = listen_in_range(entry.address, config.port_range);
    if (socket && !*socket) return no_port_left(entry.address, config.port_range);
    if (!socket) {  // for example, the address is still being set up; other addresses suffice
      trouble = std::move(socket.error());
      continue;
    }
    auto bound = posix::TcpAddress::here(socket->get());
    if (!bound) return system_error("cannot tell the port of a listening socket", errno);
    listener.endpoints_ += (listener.endpoints_.empty() ? "" : " ") + bound->text();
    listener.sockets_.push_back(std::move(*socket));
    listener.addresses_.push_back(entry);
  }
  if (listener.sockets_.empty()) return std::move(*trouble);
  if (trouble) log::info(trouble->message + "; peers will use " + listener.endpoints_);
  return listener;
}

}  // namespace hvd::connections
