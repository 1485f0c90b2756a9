#include "launcher/staging/chain.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/checksums/crc32c.hpp"
#include "native/posix/sockets/tcp_socket.hpp"

namespace hvd::launcher::staging {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds time_for_an_address{3000}, time_for_a_greeting{1000}, silence{30000};

struct Head {
  std::uint32_t bytes;
  std::uint32_t checksum;
};

// Returns the errno of the failure; 0 if all went; -1 if the other end has closed the connection.
template <typename Step>
int move(int socket, std::size_t size, short event, Deadline deadline, Step step) {
  for (std::size_t done = 0; done < size;) {
    ssize_t count = step(done);
    if (count > 0) done += static_cast<std::size_t>(count);
    else if (count == 0) return -1;
    else if (errno == EAGAIN) {
      pollfd ready{socket, event, 0};
      if (::poll(&ready, 1, static_cast<int>(std::min<milliseconds>(deadline.left(), std::chrono::hours(1)).count())) ==
              0 &&
          deadline.passed())
        return ETIMEDOUT;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

int send_all(int socket, const void* data, std::size_t size, Deadline deadline = Deadline::never()) {
  return move(socket, size, POLLOUT, deadline, [&](std::size_t at) {
    return ::send(socket, static_cast<const char*>(data) + at, size - at, MSG_NOSIGNAL);
  });
}

int receive_all(int socket, void* data, std::size_t size, Deadline deadline = Deadline::never()) {
  return move(socket, size, POLLIN, deadline,
              [&](std::size_t at) { return ::recv(socket, static_cast<char*>(data) + at, size - at, 0); });
}

// A node that unpacks slowly does not read for a long time. The connection must not be ended because of that.
void prepare(int socket) {
  (void)posix::prepare_connection(socket, silence);
  posix::set_patience_with_unanswered_data(socket, milliseconds(0));
}

}  // namespace

Result<Neighbour> Neighbour::dial(const std::string& host, const std::string& endpoints,
                                  const std::vector<posix::InterfaceAddress>& own, const std::string& secret,
                                  Deadline deadline) {
  posix::FileDescriptor socket = posix::connect_to_nearest(endpoints, own, time_for_an_address, deadline);
  if (socket) {
    prepare(socket.get());
    if (send_all(socket.get(), secret.data(), secret.size(), deadline) == 0) return Neighbour(host, std::move(socket));
  }
  return Error(ErrorCode::peer_lost, "no connection to host " + host + ", whose addresses are " +
                                         (endpoints.empty() ? "none" : endpoints) +
                                         " (--network-interfaces, HOROVOD_PORT_RANGE)");
}

Result<Neighbour> Neighbour::wait_for(const std::string& host, const posix::PeerSockets& sockets,
                                      const std::string& secret, Deadline deadline) {
  while (!deadline.passed()) {
    posix::FileDescriptor accepted = posix::accept_from_any(sockets.sockets, deadline);
    if (!accepted) continue;
    std::string greeting(secret_bytes, ' ');
    if (receive_all(accepted.get(), greeting.data(), secret_bytes, Deadline::after(time_for_a_greeting)) != 0 ||
        !are_equal_secrets(as_bytes(std::string_view(greeting)), as_bytes(std::string_view(secret))))
      continue;
    prepare(accepted.get());
    return Neighbour(host, std::move(accepted));
  }
  return Error(ErrorCode::timeout, "host " + host + " does not connect (--start-timeout, --network-interfaces)");
}

Error Neighbour::lost(int error) const {
  Error found(ErrorCode::peer_lost, "the connection to host " + host_ +
                                        " broke: " + (error < 0 ? "its process has ended" : errno_text(error)));
  found.is_a_consequence = true;
  return found;
}

Status Neighbour::send(ConstBytes block) {
  const Head head{static_cast<std::uint32_t>(block.size()), crc32c(block)};
  int error = send_all(socket_.get(), &head, sizeof head);
  if (error == 0) error = send_all(socket_.get(), block.data(), block.size());
  if (error != 0) return lost(error);
  return {};
}

Status Neighbour::send_end(const Digest& digest) {
  HVD_RETURN_IF_ERROR(send({}));
  if (int error = send_all(socket_.get(), digest.data(), digest.size()); error != 0) return lost(error);
  return {};
}

Result<ConstBytes> Neighbour::receive(Digest& digest) {
  Head head{};
  int error = receive_all(socket_.get(), &head, sizeof head);
  if (error != 0) return lost(error);
  if (head.bytes > block_bytes) return Error(ErrorCode::system, "host " + host_ + " sends a block that is too long");
  block_.resize(head.bytes);
  error = head.bytes == 0 ? receive_all(socket_.get(), digest.data(), digest.size())
                          : receive_all(socket_.get(), block_.data(), block_.size());
  if (error != 0) return lost(error);
  if (crc32c(block_) != head.checksum)
    return Error(ErrorCode::system, "what host " + host_ +
                                        " sends arrives with a wrong checksum: a faulty network "
                                        "card or memory, here or there");
  return ConstBytes(block_);
}

}  // namespace hvd::launcher::staging
