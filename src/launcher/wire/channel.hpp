#pragma once
// One end of the stream between horovodrun and the agent of a host. On this host the stream is a socket. For an agent
// that ssh started, the stream is standard input and output.
#include <cstddef>
#include <string>
#include <vector>

#include "launcher/wire/messages.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::launcher {

// Its calls never block. The owner polls descriptor() for wants(), and also writer() if that is another descriptor.
// SIGPIPE must be ignored.
template <typename Sent, typename Received>
class Channel {
 public:
  Channel() = default;
  explicit Channel(posix::FileDescriptor both);                         // the descriptor becomes non-blocking
  Channel(posix::FileDescriptor reader, posix::FileDescriptor writer);  // both descriptors become non-blocking

  int descriptor() const noexcept { return reader_.get(); }
  int writer() const noexcept { return writer_ ? writer_.get() : reader_.get(); }
  bool has_unsent() const noexcept { return sent_ < outgoing_.size(); }
  short wants() const noexcept;  // the events for which to poll descriptor()

  // From now on everything before this greeting is skipped, because the start-up files of a shell may print something.
  // The other end sends the greeting before its first message.
  void expect_greeting(std::string greeting);
  bool was_greeted() const noexcept { return awaited_.empty(); }
  // Returns the greeting of the other end if that is of another version and has the same beginning; else empty.
  std::string other_greeting(std::string_view beginning) const;
  void greet(std::string_view greeting);

  void send(const Sent& message);  // queues; flush() or pump() sends it
  void flush();
  // Reads what has come and writes what is queued. Returns the messages. closed() then tells whether the other end is
  // gone.
  std::vector<Received> pump();
  bool closed() const noexcept { return closed_; }
  void close();

 private:
  void skip_to_greeting();

  posix::FileDescriptor reader_, writer_;
  Buffer incoming_, outgoing_;
  std::size_t sent_ = 0;  // number of bytes of outgoing_ that were sent
  std::string awaited_;
  bool closed_ = false;
};

using AgentChannel = Channel<Order, Report>;       // horovodrun's end, to an agent
using HorovodrunChannel = Channel<Report, Order>;  // an agent's end, to horovodrun

}  // namespace hvd::launcher
