#pragma once
// Finds the addresses of this host that peers may use and listens on them. Also the order in which a peer's addresses
// are tried.
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/settings/config.hpp"
#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/sockets/tcp_address.hpp"

namespace hvd::posix {

// Returns the addresses of all interfaces that are up, except loopback. Bridges, which mostly belong to containers,
// come last. If there is nothing else, returns loopback. `wanted` ("eth0,ib0") selects exactly the named interfaces. If
// one is missing, the error names the existing ones.
Result<std::vector<InterfaceAddress>> usable_addresses(const std::vector<Interface>& interfaces,
                                                       std::string_view wanted);

// Sockets that listen on the usable addresses, one for each. The kernel chose the ports, or they are of the range.
struct PeerSockets {
  std::vector<FileDescriptor> sockets;
  std::vector<InterfaceAddress> addresses;  // the addresses of the sockets
  std::string endpoints;                    // addresses with ports: "10.0.0.3:41234 [fd00::3]:41234"
  std::string trouble;                      // the reason why an address was left out; empty: none was left out
};
// Fails if a wanted interface does not exist, or if the range has no free port.
Result<PeerSockets> listen_for_peers(std::string_view wanted, const PortRange& range);

// Parses text such as "10.0.0.3:41234 [fd00::3]:41234". Parts that cannot be read are left out.
std::vector<TcpAddress> parse_endpoints(std::string_view text);

// Orders a peer's addresses. Addresses in a subnet of this host come first. Addresses that this host has too come last,
// because every host may have a bridge with the same address.
std::vector<TcpAddress> by_nearness(std::vector<TcpAddress> theirs, const std::vector<InterfaceAddress>& mine);

// Connects to one of the endpoints; the nearest are tried first. Blocking. The result is empty if none answers in its
// time.
FileDescriptor connect_to_nearest(std::string_view endpoints, const std::vector<InterfaceAddress>& mine,
                                  std::chrono::milliseconds time_for_each, Deadline deadline);
// Waits for the next connection to one of the sockets; blocking. Empty if none comes before the deadline.
FileDescriptor accept_from_any(const std::vector<FileDescriptor>& sockets, Deadline deadline);

}  // namespace hvd::posix
