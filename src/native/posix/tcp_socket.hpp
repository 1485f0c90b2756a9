#pragma once
// TCP sockets: everything here is non-blocking and closed on exec.
#include <chrono>
#include <optional>

#include "base/result.hpp"
#include "native/posix/file_descriptor.hpp"
#include "native/posix/tcp_address.hpp"

namespace hvd::posix {

// Listens on exactly this address; for port 0 the kernel chooses. An empty descriptor if the port is taken.
Result<FileDescriptor> listen_on_tcp(const TcpAddress& address);

struct Accepted {
  FileDescriptor socket;  // empty when nobody waits
  std::optional<TcpAddress> from;
};
Result<Accepted> accept_from_tcp(int listener);

struct Begun {
  FileDescriptor socket;  // can be written to when the connection is there or has failed
  int error = 0;          // errno of what failed at once
};
// `from` forces the address of this end.
Begun begin_connecting(const TcpAddress& to, const std::optional<TcpAddress>& from);
// The errno of the attempt that was begun; 0 if it succeeded.
int outcome_of_connecting(int socket);

// Sends at once what is written, and notices within about `patience` that the other end's host vanished, whether data
// are under way (TCP_USER_TIMEOUT) or not (keepalive, the only thing that an idle connection sends).
Status prepare_connection(int socket, std::chrono::milliseconds patience);

// How long data that the other end does not take may wait before they end the connection (TCP_USER_TIMEOUT); 0: only
// the kernel's own limit.
void set_patience_with_unanswered_data(int socket, std::chrono::milliseconds patience);

struct SendingState {
  bool has_unsent = false;     // data for which the other end has no room yet
  bool is_unanswered = false;  // it has not answered what was sent again, or several questions for room
  std::chrono::milliseconds since_last_answer{};
};
std::optional<SendingState> sending_state(int socket);

// Lets so many bytes come in before they are read, as far as the host allows (net.ipv4.tcp_rmem), from the first
// message on. SO_RCVBUF would end the kernel's own tuning, which may go further.
void widen_receive_window(int socket, int bytes);

}  // namespace hvd::posix
