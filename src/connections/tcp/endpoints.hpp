#pragma once
// The addresses of a host that its peers may use, and the order in which a peer's addresses are tried.
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "native/posix/tcp_address.hpp"

namespace hvd::connections::tcp {

// The addresses of all interfaces that are up, without loopback; bridges (mostly of containers) come last. Loopback if
// there is nothing else. `wanted` ("eth0,ib0") takes exactly the named interfaces; the error for a missing one names
// those that there are.
Result<std::vector<posix::InterfaceAddress>> usable_addresses(const std::vector<posix::Interface>& interfaces,
                                                              std::string_view wanted);

// "10.0.0.3:41234 [fd00::3]:41234"; parts that cannot be read are left out.
std::vector<posix::TcpAddress> parse_endpoints(std::string_view text);

// Addresses in a subnet of mine come first; addresses that are also mine (every host may have a bridge of the same
// address) come last.
std::vector<posix::TcpAddress> by_nearness(std::vector<posix::TcpAddress> theirs,
                                           const std::vector<posix::InterfaceAddress>& mine);

}  // namespace hvd::connections::tcp
