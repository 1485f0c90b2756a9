#pragma once
// One end of the stream between horovodrun and the agent of a host. On this host it is a socket; for an agent that
// ssh started it is standard input and output.
#include <cstddef>
#include <string>
#include <vector>

#include "launcher/wire/messages.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::launcher {

// Never blocks. The owner polls descriptor() for wants(), and writer() if that is another descriptor. SIGPIPE must be
// ignored.
template <typename Sent, typename Received>
class Channel {
 public:
  Channel() = default;
  explicit Channel(posix::FileDescriptor both);                         // made non-blocking
  Channel(posix::FileDescriptor reader, posix::FileDescriptor writer);  // both are

  int descriptor() const noexcept { return reader_.get(); }
  int writer() const noexcept { return writer_ ? writer_.get() : reader_.get(); }
  bool has_unsent() const noexcept { return sent_ < outgoing_.size(); }
  short wants() const noexcept;  // poll events of descriptor()

  // From now on everything before this greeting is skipped, since the start-up files of a shell may print something.
  // The other end greets before its first message.
  void expect_greeting(std::string greeting);
  bool was_greeted() const noexcept { return awaited_.empty(); }
  // If the other end is of another version: its greeting, which has the same beginning. Else empty.
  std::string other_greeting(std::string_view beginning) const;
  void greet(std::string_view greeting);

  void send(const Sent& message);  // queues; flush() or pump() moves it
  void flush();
  // Reads what has come and writes what is queued. Returns the messages; closed() tells whether the other end is gone.
  std::vector<Received> pump();
  bool closed() const noexcept { return closed_; }
  void close();

 private:
  void skip_to_greeting();

  posix::FileDescriptor reader_, writer_;
  Buffer incoming_, outgoing_;
  std::size_t sent_ = 0;  // of outgoing_
  std::string awaited_;
  bool closed_ = false;
};

using AgentChannel = Channel<Order, Report>;       // of horovodrun, to an agent
using HorovodrunChannel = Channel<Report, Order>;  // of an agent, to horovodrun

}  // namespace hvd::launcher
