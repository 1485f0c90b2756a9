#pragma once
// Unix sockets without a file. Messages keep their boundaries (SOCK_SEQPACKET) and can carry a descriptor. All sockets
// are non-blocking and closed on exec.
#include <sys/types.h>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::posix {

struct ListeningSocket {
  FileDescriptor socket;
  std::string address;  // the socket's name in the abstract namespace, "@0001f"; the kernel chose it
};
Result<ListeningSocket> listen_on_unix_socket();
// Listens under a name of the caller ("@" and the name). Returns an empty descriptor if the name is taken.
Result<FileDescriptor> listen_on_unix_socket(const std::string& address);

// Succeeds as soon as the listener's queue has room, before the listener accepts. Returns an empty descriptor while the
// queue has no room.
Result<FileDescriptor> connect_to_unix_socket(const std::string& address);
// Returns an empty descriptor if no connection is waiting.
Result<FileDescriptor> accept_from(const FileDescriptor& listener);

struct PeerProcess {
  pid_t pid = 0;
  uid_t uid = 0;
};
// Returns the process that made the other end.
Result<PeerProcess> process_behind(const FileDescriptor& socket);

enum class Delivery { done, would_block, closed };

// Sends one whole message, with a descriptor unless it is negative.
Result<Delivery> send_message(const FileDescriptor& socket, ConstBytes message, int descriptor = -1);
// Receives one whole message of up to message.capacity() bytes, and the descriptor that came with it, if there is one.
Result<Delivery> receive_message(const FileDescriptor& socket, Buffer& message, FileDescriptor& descriptor);

}  // namespace hvd::posix
