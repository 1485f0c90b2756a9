#pragma once
// TCP sockets. All of them are non-blocking and closed on exec.
#include <chrono>
#include <optional>

#include "base/result.hpp"
#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/sockets/tcp_address.hpp"

namespace hvd::posix {

// Listens on exactly this address. For port 0 the kernel chooses a port. Returns an empty descriptor if the port is
// taken.
Result<FileDescriptor> listen_on_tcp(const TcpAddress& address);

struct Accepted {
  FileDescriptor socket;  // empty if no connection is waiting
  std::optional<TcpAddress> from;
};
Result<Accepted> accept_from_tcp(int listener);

struct Begun {
  FileDescriptor socket;  // writable when the connection is there or has failed
  int error = 0;          // errno of a connection that failed at once
};
// `from` sets the address of this end.
Begun begin_connecting(const TcpAddress& to, const std::optional<TcpAddress>& from);
// Returns the errno of the attempt that was begun; 0 if it succeeded.
int outcome_of_connecting(int socket);

// The least time after which a host that gives no sign of life is lost. The kernel asks an idle connection's other end
// once a second. It takes two questions without an answer for a host to be lost, because one means nothing: with 2 s, 5
// of 60 connections broke in 100 s between hosts that nothing ailed.
constexpr std::chrono::milliseconds least_patience{3000};

// Prepares a connection: it sends at once what is written, and it notices within about `patience`, at least
// least_patience, that the other end's host has vanished. This works if data are under way (TCP_USER_TIMEOUT) and also
// if not (keepalive, which is all that an idle connection sends).
Status prepare_connection(int socket, std::chrono::milliseconds patience);

// Sets how long data that the other end does not take may wait, at least least_patience. After that time they end the
// connection (TCP_USER_TIMEOUT). 0: only the kernel's own limit.
void set_patience_with_unanswered_data(int socket, std::chrono::milliseconds patience);

struct SendingState {
  bool has_unsent = false;     // there are data for which the other end has no room yet
  bool is_unanswered = false;  // no answer to data that were sent again, or to several questions for room
  std::chrono::milliseconds since_last_answer{};
};
std::optional<SendingState> sending_state(int socket);

// Lets this number of bytes arrive before they are read, from the first message on, as far as the host allows
// (net.ipv4.tcp_rmem). SO_RCVBUF would end the kernel's own tuning, which may allow more.
void widen_receive_window(int socket, int bytes);

}  // namespace hvd::posix
