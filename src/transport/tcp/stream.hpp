#pragma once
// The connection to one seat of a link: what waits to be sent, what is expected, and what came too early.
//
//  1. Messages leave in the order of the sends: a header, then the bytes, as the socket has room.
//  2. What arrives is read only while a receive waits for it. So a peer that runs ahead fills the kernel's buffers and
//     then waits: no memory of ours grows with what it sends.
//  3. A message that a receive waits for is read straight into the receive's memory (up to the few KB that come along
//     with its header).
//  4. A message that nobody waits for yet, but that stands before one that is waited for, is put aside in private
//     memory. Nothing else is.
//  5. When the connection ends, whatever had arrived before is still delivered; then the receives fail. The sends fail
//     as soon as the kernel takes no more.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "native/posix/file_descriptor.hpp"
#include "transport/tcp/wire.hpp"

namespace hvd::transport::tcp {

// Operations are numbers in a table that the link owns. Used by one thread.
class Stream {
 public:
  // Why the connection ended.
  struct End {
    int error = 0;             // errno; 0 if the other end closed it
    std::string abort_reason;  // why the other end aborted the link; empty if it did not say
  };

  explicit Stream(std::vector<Operation>& operations) : operations_(&operations) {}

  bool is_open() const { return static_cast<bool>(socket_); }
  int descriptor() const { return socket_.get(); }
  void open(posix::FileDescriptor socket);
  // Forgets all operations and gives the descriptor to the caller.
  posix::FileDescriptor take_socket();

  void send(std::uint32_t operation);
  // Takes a message that came too early, or waits for one.
  void recv(std::uint32_t operation);
  bool has_to_send() const { return first_ < outgoing_.size(); }
  bool expects_anything() const { return !waiting_.empty() || target_ >= 0; }
  bool is_idle() const { return !has_to_send() && !expects_anything(); }

  // How often push() has found no room since something last went out.
  unsigned blocked_looks() const { return blocked_looks_; }
  // Moves what can be moved now, up to a few hundred KB in each direction. True if anything was.
  bool push();
  bool pull();

  // The other end has closed its half. It does so only when it wants nothing more that is sent to it.
  bool is_left() const;
  // Everything that waits fails; there is no connection.
  void fail(End end);
  // Tells the other end that this one has aborted the link, and why; not while a message is half sent, for this would
  // be taken for a part of it.
  void tell_abort(const std::string& why);
  const std::optional<End>& end() const { return end_; }

 private:
  struct Early {
    Channel channel;
    Buffer bytes;
  };
  bool read_header();
  bool read_body();
  void end_message();
  bool fill();
  std::int64_t take_waiting(const Channel& channel);
  void settle(std::uint32_t operation, std::size_t actual_bytes);
  bool note_end(ssize_t result);
  void fail_sends();
  void fail_receives();
  std::size_t staged() const { return stage_end_ - stage_begin_; }

  std::vector<Operation>* operations_;
  posix::FileDescriptor socket_;
  std::optional<End> end_;
  std::uint64_t read_bytes_ = 0;

  std::vector<std::uint32_t> outgoing_;  // oldest first, from first_ on
  std::size_t first_ = 0;
  std::size_t sent_ = 0;  // of the first, header included
  unsigned blocked_looks_ = 0;
  bool can_send_ = true, can_receive_ = true;

  std::vector<std::uint32_t> waiting_;  // receives, oldest first
  std::unique_ptr<std::byte[]> stage_;  // read and not looked at yet
  std::size_t stage_begin_ = 0, stage_end_ = 0;
  bool is_inside_ = false;  // a header was read; its bytes follow
  Header header_;
  std::size_t received_ = 0;
  std::int64_t target_ = -1;  // the receive that the bytes go to; -1: early_.back()
  std::vector<Early> early_;
  std::vector<Buffer> spare_;  // memory of early messages, kept for the next
};

}  // namespace hvd::transport::tcp
