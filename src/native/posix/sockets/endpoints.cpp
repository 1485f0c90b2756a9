#include "native/posix/sockets/endpoints.hpp"

#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "native/posix/sockets/tcp_socket.hpp"

namespace hvd::posix {
namespace {

// Returns the parts between the separators, trimmed and without empty ones.
std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    auto end = std::min(text.find(separator), text.size());
    std::string_view part = text.substr(0, end);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    if (!part.empty()) parts.push_back(part);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// False for a link-local IPv6 address: it is useless without the number of an interface of the other host.
bool is_usable(const TcpAddress& address) {
  return address.family() == AF_INET || !address.is_link_local();
}

std::string describe(const std::vector<Interface>& interfaces) {
  std::string text;
  for (const Interface& interface : interfaces) {
    std::string addresses;
    for (const auto& entry : interface.addresses)
      if (is_usable(entry.address)) addresses += (addresses.empty() ? "" : ", ") + entry.address.host();
    text += (text.empty() ? "" : "; ") + interface.name + " (" +
            (addresses.empty() ? "no address" : addresses + (interface.is_running ? "" : ", down")) + ")";
  }
  return text;
}

// Returns a random start in the port range. Ranks of one node then do not all try the same ports.
unsigned draw_start(unsigned below) {
  unsigned drawn = 0;
  [[maybe_unused]] auto got = ::getrandom(&drawn, sizeof drawn, 0);
  return drawn % below;
}

// Returns an empty descriptor if all ports of the range are taken.
Result<FileDescriptor> listen_in_range(const TcpAddress& address, const PortRange& range) {
  if (range.first == 0) return listen_on_tcp(address);
  auto ports = static_cast<unsigned>(range.last - range.first + 1);
  unsigned start = draw_start(ports);
  for (unsigned turn = 0; turn < ports; ++turn) {
    auto port = static_cast<std::uint16_t>(range.first + (start + turn) % ports);
    auto socket = listen_on_tcp(address.with_port(port));
    if (!socket || *socket) return socket;
  }
  return FileDescriptor();
}

Error no_port_left(const TcpAddress& address, const PortRange& range) {
  return {ErrorCode::system,
          "HOROVOD_PORT_RANGE=" + std::to_string(range.first) + "-" + std::to_string(range.last) +
              ": no port of it is free on " + address.host() +
              "; every rank of a node needs one, and other programs or jobs may hold some: widen the "
              "range"};
}

}  // namespace

Result<std::vector<InterfaceAddress>> usable_addresses(const std::vector<Interface>& interfaces,
                                                       std::string_view wanted) {
  std::vector<InterfaceAddress> usable;
  auto take = [&](const Interface& interface) {
    for (const auto& entry : interface.addresses)
      if (is_usable(entry.address)) usable.push_back(entry);
  };
  for (std::string_view name : parts_of(wanted, ',')) {
    auto found =
        std::find_if(interfaces.begin(), interfaces.end(), [&](const auto& each) { return each.name == name; });
    std::size_t before = usable.size();
    if (found != interfaces.end() && found->is_running) take(*found);
    if (usable.size() > before) continue;
    std::string problem = found == interfaces.end() ? "does not exist"
                          : found->is_running       ? "has no address that peers could use"
                                                    : "is down";
    return Error(ErrorCode::invalid_argument, "HOROVOD_GLOO_IFACE=" + std::string(wanted) + ": the network interface " +
                                                  std::string(name) + " " + problem + " on this host, which has " +
                                                  describe(interfaces) + "; correct it or unset it");
  }
  auto take_all = [&](auto is_wanted) {
    for (const Interface& interface : interfaces)
      if (interface.is_running && is_wanted(interface)) take(interface);
  };
  if (usable.empty()) {
    take_all([](const Interface& each) { return !each.is_loopback && !each.is_bridge; });
    take_all([](const Interface& each) { return !each.is_loopback && each.is_bridge; });
  }
  if (usable.empty()) take_all([](const Interface& each) { return each.is_loopback; });
  if (usable.empty()) {
    return Error(ErrorCode::system,
                 "no network interface of this host is up and has an address: it has " + describe(interfaces));
  }
  return usable;
}

Result<PeerSockets> listen_for_peers(std::string_view wanted, const PortRange& range) {
  auto all = interfaces();
  if (!all) return std::move(all.error());
  auto addresses = usable_addresses(*all, wanted);
  if (!addresses) return std::move(addresses.error());
  PeerSockets found;
  std::optional<Error> trouble;
  for (const InterfaceAddress& entry : *addresses) {
    auto socket = listen_in_range(entry.address, range);
    if (socket && !*socket) return no_port_left(entry.address, range);
    if (!socket) {  // the address may still be being set up; the other addresses suffice
      trouble = std::move(socket.error());
      continue;
    }
    auto bound = TcpAddress::here(socket->get());
    if (!bound) return system_error("cannot tell the port of a listening socket", errno);
    found.endpoints += (found.endpoints.empty() ? "" : " ") + bound->text();
    found.sockets.push_back(std::move(*socket));
    found.addresses.push_back(entry);
  }
  if (found.sockets.empty()) return std::move(*trouble);
  if (trouble) found.trouble = std::move(trouble->message);
  return found;
}

std::vector<TcpAddress> parse_endpoints(std::string_view text) {
  std::vector<TcpAddress> endpoints;
  for (std::string_view part : parts_of(text, ' '))
    if (auto endpoint = TcpAddress::parse(part)) endpoints.push_back(*endpoint);
  return endpoints;
}

std::vector<TcpAddress> by_nearness(std::vector<TcpAddress> theirs, const std::vector<InterfaceAddress>& mine) {
  auto distance = [&](const TcpAddress& address) {
    int least = address.is_link_local() ? 2 : 1;
    for (const InterfaceAddress& own : mine) {
      if (address.is_same_host(own.address)) return 3;
      if (address.shares_prefix(own.address, own.prefix_bits)) least = 0;
    }
    return least;
  };
  std::stable_sort(theirs.begin(), theirs.end(),
                   [&](const auto& left, const auto& right) { return distance(left) < distance(right); });
  return theirs;
}

FileDescriptor connect_to_nearest(std::string_view endpoints, const std::vector<InterfaceAddress>& mine,
                                  std::chrono::milliseconds time_for_each, Deadline deadline) {
  for (const TcpAddress& address : by_nearness(parse_endpoints(endpoints), mine)) {
    Begun begun = begin_connecting(address, std::nullopt);
    if (!begun.socket) continue;
    pollfd ready{begun.socket.get(), POLLOUT, 0};
    const auto patience = std::min(deadline.left(), time_for_each);
    if (::poll(&ready, 1, static_cast<int>(patience.count())) > 0 && outcome_of_connecting(begun.socket.get()) == 0)
      return std::move(begun.socket);
  }
  return {};
}

FileDescriptor accept_from_any(const std::vector<FileDescriptor>& sockets, Deadline deadline) {
  do {
    std::vector<pollfd> ready;
    for (const FileDescriptor& socket : sockets) ready.push_back({socket.get(), POLLIN, 0});
    if (::poll(ready.data(), ready.size(), static_cast<int>(deadline.left().count())) <= 0) continue;
    auto caller = std::find_if(ready.begin(), ready.end(), [](const pollfd& each) { return each.revents != 0; });
    auto accepted = accept_from_tcp(caller->fd);
    if (accepted && accepted->socket) return std::move(accepted->socket);
  } while (!deadline.passed());
  return {};
}

}  // namespace hvd::posix
