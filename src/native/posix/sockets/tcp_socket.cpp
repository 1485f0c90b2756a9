#include "native/posix/sockets/tcp_socket.hpp"

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>

namespace hvd::posix {
namespace {

// All ranks may connect to one rank at the same time. The kernel limits the queue to net.core.somaxconn.
constexpr int longest_queue = 4096;

// The kernel refuses longer pauses between its questions (MAX_TCP_KEEPIDLE, MAX_TCP_KEEPINTVL), in seconds.
constexpr int longest_pause = 32767;

Status set_option(int socket, int level, int name, int value) {
  if (::setsockopt(socket, level, name, &value, sizeof value) == 0) return {};
  return system_error("cannot set option " + std::to_string(name) + " of a TCP socket", errno);
}

Result<FileDescriptor> new_socket(int family) {
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return system_error("cannot make a TCP socket", errno);
  return socket;
}

}  // namespace

Result<FileDescriptor> listen_on_tcp(const TcpAddress& address) {
  auto socket = new_socket(address.family());
  if (!socket) return socket;
  // Without this option a connection of an earlier job in TIME_WAIT would keep its port from us.
  HVD_RETURN_IF_ERROR(set_option(socket->get(), SOL_SOCKET, SO_REUSEADDR, 1));
  if (address.family() == AF_INET6) HVD_RETURN_IF_ERROR(set_option(socket->get(), IPPROTO_IPV6, IPV6_V6ONLY, 1));
  if (::bind(socket->get(), address.data(), address.size()) != 0 || ::listen(socket->get(), longest_queue) != 0) {
    if (errno == EADDRINUSE) return FileDescriptor();
    return system_error("cannot listen on " + address.text(), errno);
  }
  return socket;
}

Result<Accepted> accept_from_tcp(int listener) {
  for (;;) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    FileDescriptor socket(::accept4(listener, plain, &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) return Accepted{std::move(socket), TcpAddress::of(plain)};
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Accepted{};
    // The other errors of accept(2) concern only one connection.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM || errno == EBADF || errno == EINVAL)
      return system_error("cannot accept a TCP connection", errno);
  }
}

Begun begin_connecting(const TcpAddress& to, const std::optional<TcpAddress>& from) {
  Begun begun{FileDescriptor(::socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)), 0};
  int one = 1;
  bool is_ready = static_cast<bool>(begun.socket);
  if (is_ready && from) {
    // Without this option each bind() would take a port for the whole host.
    is_ready = ::setsockopt(begun.socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one) == 0 &&
               ::bind(begun.socket.get(), from->data(), from->size()) == 0;
  }
  if (!is_ready || (::connect(begun.socket.get(), to.data(), to.size()) != 0 && errno != EINPROGRESS)) {
    begun.error = errno;
    begun.socket.reset();
  }
  return begun;
}

int outcome_of_connecting(int socket) {
  int value = 0;
  socklen_t size = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &value, &size) == 0 ? value : errno;
}

Status prepare_connection(int socket, std::chrono::milliseconds patience) {
  // The kernel probes first at patience - 3 intervals, then in every interval. With a user timeout the first probe
  // after that time ends the connection (tcp(7)). The kernel counts in seconds here.
  auto seconds = static_cast<int>(std::max(patience, least_patience).count() / 1000);
  int interval = std::clamp(seconds / 5, 1, longest_pause);
  int first = std::clamp(seconds - 3 * interval, 1, longest_pause);
  HVD_RETURN_IF_ERROR(set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1));
  HVD_RETURN_IF_ERROR(set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, first));
  HVD_RETURN_IF_ERROR(set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, interval));
  HVD_RETURN_IF_ERROR(set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3));
  set_patience_with_unanswered_data(socket, patience);
  return set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
}

void set_patience_with_unanswered_data(int socket, std::chrono::milliseconds patience) {
  if (patience.count() > 0) patience = std::max(patience, least_patience);
  auto milliseconds = static_cast<unsigned>(std::min<std::int64_t>(patience.count(), 1 << 30));
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
}

std::optional<SendingState> sending_state(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  int unsent = 0;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || ::ioctl(socket, SIOCOUTQNSD, &unsent) != 0)
    return std::nullopt;
  bool is_repeating = info.tcpi_retransmits > 0 && info.tcpi_last_data_sent < info.tcpi_last_ack_recv;
  // Linux answers only one such question in half a second (tcp_invalid_ratelimit), so one missing answer means nothing.
  return SendingState{unsent > 0, is_repeating || info.tcpi_probes > 1,
                      std::chrono::milliseconds(info.tcpi_last_ack_recv)};
}

// If a reader waits for this number of bytes, the kernel makes room for them (tcp_set_rcvlowat). It keeps that room
// when nobody waits any more.
void widen_receive_window(int socket, int bytes) {
  for (int least : {bytes, 1}) ::setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
}

}  // namespace hvd::posix
