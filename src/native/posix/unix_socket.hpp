#pragma once
// Unix sockets without a file: messages with boundaries (SOCK_SEQPACKET) that can carry a descriptor. Everything here
// is non-blocking and closed on exec.
#include <sys/types.h>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::posix {

struct ListeningSocket {
  FileDescriptor socket;
  std::string address;  // "@0001f": the kernel's choice, in the abstract namespace
};
Result<ListeningSocket> listen_on_unix_socket();
// Listens under a name of the caller's ("@" and the name). An empty descriptor if the name is taken.
Result<FileDescriptor> listen_on_unix_socket(const std::string& address);

// Succeeds as soon as the listener's queue has room, before it accepts. An empty descriptor while it has none.
Result<FileDescriptor> connect_to_unix_socket(const std::string& address);
// An empty descriptor when nobody waits.
Result<FileDescriptor> accept_from(const FileDescriptor& listener);

struct PeerProcess {
  pid_t pid = 0;
  uid_t uid = 0;
};
// The process that made the other end.
Result<PeerProcess> process_behind(const FileDescriptor& socket);

enum class Delivery { done, would_block, closed };

// Sends one whole message, with a descriptor unless it is negative.
Result<Delivery> send_message(const FileDescriptor& socket, ConstBytes message, int descriptor = -1);
// Receives one whole message of up to message.capacity() bytes, and the descriptor that came along, if any.
Result<Delivery> receive_message(const FileDescriptor& socket, Buffer& message, FileDescriptor& descriptor);

}  // namespace hvd::posix
