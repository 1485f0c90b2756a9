#pragma once
// The connection to one seat of a link, with the messages that wait to be sent, the receives that wait, and the
// messages that came too early.
//
//  1. Messages leave in the order of the sends: a header, then the bytes, as the socket has room.
//  2. Arrived bytes are read only while a receive waits for something. So if a peer runs ahead, it fills the kernel's
//     buffers and then waits. This process's memory does not grow with the peer's messages.
//  3. If a receive waits for a message, the message is read directly into the receive's memory, except for a few KB
//     that come together with its header.
//  4. A message that no receive waits for is moved into private memory if a receive waits for a later message. No other
//     message is moved there.
//  5. When the connection ends, everything that had arrived before is still delivered; then the receives fail. The
//     sends fail as soon as the kernel takes no more bytes.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "native/posix/files/file_descriptor.hpp"
#include "transport/tcp/wire.hpp"

namespace hvd::transport::tcp {

// Operations are numbers in a table that the link owns. Only one thread uses a stream.
class Stream {
 public:
  // The reason why the connection ended.
  struct End {
    int error = 0;             // errno; 0 if the other end closed the connection
    std::string abort_reason;  // why the other end aborted the link; empty if it gave no reason
  };

  explicit Stream(std::vector<Operation>& operations) : operations_(&operations) {}

  bool is_open() const { return static_cast<bool>(socket_); }
  int descriptor() const { return socket_.get(); }
  void open(posix::FileDescriptor socket);
  // Forgets all operations and gives the descriptor to the caller.
  posix::FileDescriptor take_socket();

  void send(std::uint32_t operation);
  // Takes a message that came too early. If there is none, waits for a message.
  void recv(std::uint32_t operation);
  bool has_to_send() const { return first_ < outgoing_.size(); }
  bool expects_anything() const { return !waiting_.empty() || target_ >= 0; }
  bool is_idle() const { return !has_to_send() && !expects_anything(); }

  // Returns how often push() has found no room since the last bytes went out.
  unsigned blocked_looks() const { return blocked_looks_; }
  // Move what can be moved now, up to a few hundred KB in each direction. Return true if anything was moved.
  bool push();
  bool pull();

  // True if the other end has closed its half. It does so only when it does not need any more messages.
  bool is_left() const;
  // Called when there is no connection any more. Makes every operation fail that waits.
  void fail(End end);
  // Tells the other end that this end has aborted the link, and why. Does nothing while a message is half sent, because
  // the text would be taken for a part of that message.
  void send_abort(const std::string& why);
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
  std::size_t sent_ = 0;  // number of bytes of the first operation that were sent, including the header
  unsigned blocked_looks_ = 0;
  bool can_send_ = true, can_receive_ = true;

  std::vector<std::uint32_t> waiting_;  // receives that wait, oldest first
  std::unique_ptr<std::byte[]> stage_;  // bytes that were read but not used yet
  std::size_t stage_begin_ = 0, stage_end_ = 0;
  bool is_inside_ = false;  // a header was read and its bytes are still coming in
  Header header_;
  std::size_t received_ = 0;
  std::int64_t target_ = -1;  // the receive that gets the bytes; -1: early_.back() gets them
  std::vector<Early> early_;
  std::vector<Buffer> spare_;  // memory of earlier early messages, kept for later ones
};

}  // namespace hvd::transport::tcp
