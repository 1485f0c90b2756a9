#include "native/posix/sockets/unix_socket.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace hvd::posix {
namespace {

Result<FileDescriptor> new_socket() {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error("socket(AF_UNIX)", errno);
  return socket;
}

bool means_closed(int reason) {
  return reason == EPIPE || reason == ECONNRESET || reason == ENOTCONN;
}
bool means_later(int reason) {
  return reason == EAGAIN || reason == EWOULDBLOCK || reason == ENOBUFS;
}

struct Name {
  sockaddr_un content{};
  socklen_t length = 0;
  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&content); }
};

Result<Name> named(const std::string& address) {
  Name name;
  if (address.size() < 2 || address[0] != '@' || address.size() > sizeof name.content.sun_path) {
    return Error(ErrorCode::invalid_argument,
                 "\"" + address + "\" is no address of an abstract unix socket; expected \"@\" and a name");
  }
  name.content.sun_family = AF_UNIX;
  std::memcpy(name.content.sun_path + 1, address.data() + 1, address.size() - 1);
  name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
  return name;
}

}  // namespace

Result<ListeningSocket> listen_on_unix_socket() {
  auto socket = new_socket();
  if (!socket) return std::move(socket.error());
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  // If the name is empty, the kernel chooses a name that nobody has (unix(7), autobind).
  if (::bind(socket->get(), reinterpret_cast<sockaddr*>(&name), sizeof(sa_family_t)) != 0) {
    return system_error("bind of a unix socket", errno);
  }
  if (::listen(socket->get(), SOMAXCONN) != 0) return system_error("listen on a unix socket", errno);
  socklen_t length = sizeof name;
  if (::getsockname(socket->get(), reinterpret_cast<sockaddr*>(&name), &length) != 0) {
    return system_error("getsockname of a unix socket", errno);
  }
  std::size_t text = length - offsetof(sockaddr_un, sun_path);
  ListeningSocket listening{std::move(*socket), "@" + std::string(name.sun_path + 1, text - 1)};
  return listening;
}

Result<FileDescriptor> listen_on_unix_socket(const std::string& address) {
  auto name = named(address);
  if (!name) return std::move(name.error());
  auto socket = new_socket();
  if (!socket) return socket;
  if (::bind(socket->get(), name->data(), name->length) != 0) {
    if (errno == EADDRINUSE) return FileDescriptor();
    return system_error("bind of unix socket " + address, errno);
  }
  if (::listen(socket->get(), SOMAXCONN) != 0) return system_error("listen on unix socket " + address, errno);
  return socket;
}

Result<FileDescriptor> connect_to_unix_socket(const std::string& address) {
  auto name = named(address);
  if (!name) return std::move(name.error());
  auto socket = new_socket();
  if (!socket) return socket;
  int outcome = 0;
  do outcome = ::connect(socket->get(), name->data(), name->length);
  while (outcome != 0 && errno == EINTR);
  if (outcome != 0 && errno == EAGAIN) return FileDescriptor();
  if (outcome != 0) return system_error("connect to unix socket " + address, errno);
  return socket;
}

Result<FileDescriptor> accept_from(const FileDescriptor& listener) {
  for (;;) {
    FileDescriptor accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (accepted || means_later(errno)) return accepted;
    if (errno != EINTR && errno != ECONNABORTED) return system_error("accept on a unix socket", errno);
  }
}

Result<PeerProcess> process_behind(const FileDescriptor& socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return system_error("getsockopt(SO_PEERCRED)", errno);
  }
  return PeerProcess{credentials.pid, credentials.uid};
}

Result<Delivery> send_message(const FileDescriptor& socket, ConstBytes message, int descriptor) {
  iovec content{const_cast<std::byte*>(message.data()), message.size()};
  msghdr header{};
  header.msg_iov = &content;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (descriptor >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  for (;;) {
    if (::sendmsg(socket.get(), &header, MSG_NOSIGNAL) >= 0) return Delivery::done;
    if (means_later(errno)) return Delivery::would_block;
    if (means_closed(errno)) return Delivery::closed;
    if (errno != EINTR) return system_error("sendmsg on a unix socket", errno);
  }
}

Result<Delivery> receive_message(const FileDescriptor& socket, Buffer& message, FileDescriptor& descriptor) {
  message.resize(message.capacity());
  iovec content{message.data(), message.size()};
  msghdr header{};
  header.msg_iov = &content;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t got = 0;
  do got = ::recvmsg(socket.get(), &header, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  int reason = errno;
  message.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  if (got < 0) {
    if (means_later(reason)) return Delivery::would_block;
    if (means_closed(reason)) return Delivery::closed;
    return system_error("recvmsg on a unix socket", reason);
  }
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    int received = -1;
    std::memcpy(&received, CMSG_DATA(part), sizeof received);
    descriptor = FileDescriptor(received);
  }
  if (got == 0) return Delivery::closed;  // a message without bytes is the end, because we never send one
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return Error(ErrorCode::system, "a message on a unix socket was longer than " + std::to_string(content.iov_len) +
                                        " bytes, or this process has no descriptor left (see ulimit -n)");
  }
  return Delivery::done;
}

}  // namespace hvd::posix
