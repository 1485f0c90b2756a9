#include "native/posix/sockets/tcp_address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/text/number.hpp"

namespace hvd::posix {

std::optional<TcpAddress> TcpAddress::of(const sockaddr* address) {
  TcpAddress result;
  if (address != nullptr && address->sa_family == AF_INET) {
    std::memcpy(&result.v4_, address, sizeof result.v4_);
    return result;
  }
  if (address == nullptr || address->sa_family != AF_INET6) return std::nullopt;
  std::memcpy(&result.v6_, address, sizeof result.v6_);
  result.is_v6_ = true;
  if (!IN6_IS_ADDR_V4MAPPED(&result.v6_.sin6_addr)) return result;
  result.is_v6_ = false;
  result.v4_.sin_family = AF_INET;
  result.v4_.sin_port = result.v6_.sin6_port;
  std::memcpy(&result.v4_.sin_addr, result.v6_.sin6_addr.s6_addr + 12, sizeof result.v4_.sin_addr);
  return result;
}

std::optional<TcpAddress> TcpAddress::parse(std::string_view text) {
  auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  auto port = number_in<std::uint16_t>(text.substr(colon + 1));
  if (!port) return std::nullopt;
  TcpAddress result;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    result.is_v6_ = true;
    result.v6_.sin6_family = AF_INET6;
    result.v6_.sin6_port = htons(*port);
    std::string inside(host.substr(1, host.size() - 2));
    return ::inet_pton(AF_INET6, inside.c_str(), &result.v6_.sin6_addr) == 1 ? std::optional(result) : std::nullopt;
  }
  result.v4_.sin_family = AF_INET;
  result.v4_.sin_port = htons(*port);
  return ::inet_pton(AF_INET, std::string(host).c_str(), &result.v4_.sin_addr) == 1 ? std::optional(result)
                                                                                    : std::nullopt;
}

std::optional<TcpAddress> TcpAddress::here(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  return ::getsockname(socket, plain, &size) == 0 ? of(plain) : std::nullopt;
}

std::optional<TcpAddress> TcpAddress::there(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  return ::getpeername(socket, plain, &size) == 0 ? of(plain) : std::nullopt;
}

std::string TcpAddress::host() const {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(family(), address_bytes().data(), text, sizeof text);
  return text;
}

std::string TcpAddress::text() const {
  return (is_v6_ ? "[" + host() + "]" : host()) + ":" + std::to_string(port());
}

std::uint16_t TcpAddress::port() const {
  return ntohs(is_v6_ ? v6_.sin6_port : v4_.sin_port);
}

TcpAddress TcpAddress::with_port(std::uint16_t port) const {
  TcpAddress result = *this;
  (is_v6_ ? result.v6_.sin6_port : result.v4_.sin_port) = htons(port);
  return result;
}

ConstBytes TcpAddress::address_bytes() const {
  return is_v6_ ? std::as_bytes(std::span(&v6_.sin6_addr, 1)) : std::as_bytes(std::span(&v4_.sin_addr, 1));
}

bool TcpAddress::is_loopback() const {
  return is_v6_ ? IN6_IS_ADDR_LOOPBACK(&v6_.sin6_addr) : address_bytes()[0] == std::byte{127};
}

bool TcpAddress::is_link_local() const {
  if (is_v6_) return IN6_IS_ADDR_LINKLOCAL(&v6_.sin6_addr);
  return address_bytes()[0] == std::byte{169} && address_bytes()[1] == std::byte{254};
}

bool TcpAddress::shares_prefix(const TcpAddress& other, int bits) const {
  if (is_v6_ != other.is_v6_) return false;
  ConstBytes mine = address_bytes(), theirs = other.address_bytes();
  auto whole = std::min(static_cast<std::size_t>(std::max(bits, 0) / 8), mine.size());
  if (!std::equal(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(whole), theirs.begin())) return false;
  int rest = bits % 8;
  if (whole == mine.size() || rest == 0) return true;
  return ((mine[whole] ^ theirs[whole]) >> (8 - rest)) == std::byte{0};
}

bool TcpAddress::is_same_host(const TcpAddress& other) const {
  return shares_prefix(other, 128);
}

namespace {

int prefix_bits_of(const TcpAddress& mask) {
  int bits = 0;
  while (bits < (mask.family() == AF_INET6 ? 128 : 32)) {
    auto all = TcpAddress::parse(mask.family() == AF_INET6 ? "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:0"
                                                           : "255.255.255.255:0");
    if (!mask.shares_prefix(*all, bits + 1)) break;
    ++bits;
  }
  return bits;
}

}  // namespace

Result<std::vector<Interface>> interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return system_error("cannot list the network interfaces (getifaddrs)", errno);
  std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, &::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    auto known =
        std::find_if(found.begin(), found.end(), [&](const Interface& other) { return other.name == entry->ifa_name; });
    if (known == found.end()) {
      Interface made;
      made.name = entry->ifa_name;
      made.is_running = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
      made.is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
      made.is_bridge = ::access(("/sys/class/net/" + made.name + "/bridge").c_str(), F_OK) == 0;
      known = found.insert(found.end(), std::move(made));
    }
    auto address = TcpAddress::of(entry->ifa_addr), mask = TcpAddress::of(entry->ifa_netmask);
    if (!address) continue;
    known->addresses.push_back({address->with_port(0), mask ? prefix_bits_of(*mask) : 128});
  }
  return found;
}

Error none_of_the_interfaces(const std::vector<std::string>& asked, const std::vector<Interface>& found) {
  std::string wanted, names;
  for (const std::string& name : asked) wanted += (wanted.empty() ? "" : ", ") + name;
  for (const Interface& interface : found) names += (names.empty() ? "" : ", ") + interface.name;
  return {ErrorCode::invalid_argument, "none of the network interfaces asked for (" + wanted +
                                           ") is here with an address; this host has " + names +
                                           ": correct --network-interfaces, or leave it out"};
}

}  // namespace hvd::posix
