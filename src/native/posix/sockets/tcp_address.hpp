#pragma once
// An address and port of TCP, IPv4 or IPv6; and the addresses of this host.
#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace hvd::posix {

class TcpAddress {
 public:
  // Reads an address that the kernel has filled in. Returns nullopt unless it is IPv4 or IPv6. An IPv4 address inside
  // of an IPv6 address becomes IPv4.
  static std::optional<TcpAddress> of(const sockaddr* address);
  // Reads "10.0.0.3:41234" or "[fd00::3]:41234".
  static std::optional<TcpAddress> parse(std::string_view text);
  // Return the addresses of this end and of the other end of a connection.
  static std::optional<TcpAddress> here(int socket);
  static std::optional<TcpAddress> there(int socket);

  std::string text() const;  // the form that parse() reads
  std::string host() const;  // the address without its port: "10.0.0.3", "fd00::3"
  std::uint16_t port() const;
  TcpAddress with_port(std::uint16_t port) const;
  int family() const { return is_v6_ ? AF_INET6 : AF_INET; }
  bool is_loopback() const;
  bool is_link_local() const;
  // True if the two addresses are of one family and have equal first `bits` bits.
  bool shares_prefix(const TcpAddress& other, int bits) const;
  bool is_same_host(const TcpAddress& other) const;

  const sockaddr* data() const { return static_cast<const sockaddr*>(is_v6_ ? static_cast<const void*>(&v6_) : &v4_); }
  socklen_t size() const { return is_v6_ ? sizeof v6_ : sizeof v4_; }

 private:
  TcpAddress() = default;
  ConstBytes address_bytes() const;
  bool is_v6_ = false;
  sockaddr_in v4_{};
  sockaddr_in6 v6_{};
};

struct InterfaceAddress {
  TcpAddress address;  // address of the interface, with port 0
  int prefix_bits = 0;
};
struct Interface {
  std::string name;
  bool is_running = false;  // up, and connected to something; false for a bridge without containers
  bool is_loopback = false;
  bool is_bridge = false;
  std::vector<InterfaceAddress> addresses;
};
// Returns the interfaces of this host in the kernel's order, also those without addresses.
Result<std::vector<Interface>> interfaces();
// Makes the error for the case that none of the wanted interfaces is among `found`.
Error none_of_the_interfaces(const std::vector<std::string>& asked, const std::vector<Interface>& found);

}  // namespace hvd::posix
