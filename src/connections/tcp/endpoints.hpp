#pragma once
// Which addresses of a host its peers may use, and in which order a peer's are tried.
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "native/posix/tcp_address.hpp"

namespace hvd::connections::tcp {

// Of all interfaces that are up but loopback, bridges (of containers, mostly) last; of loopback where there is nothing
// else. `wanted` ("eth0,ib0") takes exactly the named ones, and fails with the names that there are.
Result<std::vector<posix::InterfaceAddress>> usable_addresses(const std::vector<posix::Interface>& interfaces,
                                                              std::string_view wanted);

// "10.0.0.3:41234 [fd00::3]:41234"; what cannot be read is left out.
std::vector<posix::TcpAddress> parse_endpoints(std::string_view text);

// Those in a subnet of mine first; addresses that are mine too (every host may have a bridge of the same address) last.
std::vector<posix::TcpAddress> by_nearness(std::vector<posix::TcpAddress> theirs,
                                           const std::vector<posix::InterfaceAddress>& mine);

}  // namespace hvd::connections::tcp
