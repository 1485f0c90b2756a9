#pragma once
// Messages over a TCP connection between two ends that know the same secret. Neither end interprets what the other end
// says before the other end has proven that it knows the secret. Nobody between the ends can read the secret, change a
// message or repeat one. But the messages themselves are not encrypted.
//
// 1. The side that accepted sends 8 bytes `HVDstor2` and 32 random bytes.
// 2. The side that dialled answers with 32 random bytes of its own and HMAC(secret, "dialler", both random numbers). If
//    the HMAC is wrong, the acceptor sends 4 bytes 0xff and ends the connection.
// 3. Then messages go in both directions: u32 length, the bytes, HMAC(session key, direction, u64 number of the
//    message, SHA-256(bytes)). The session key is HMAC(secret, "session", both random numbers). A wrong HMAC ends the
//    connection. The first right HMAC proves that the acceptor knows the secret, too.
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/checksums/sha256.hpp"
#include "base/result.hpp"
#include "bootstrap/store/verbs.hpp"
#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/sockets/unix_socket.hpp"

namespace hvd::bootstrap {

// Used by one thread. Its calls never block.
class SealedStream {
 public:
  enum class Side { dialled, accepted };
  static constexpr std::string_view mark = "HVDstor2";  // what the side that accepted sends first
  SealedStream(posix::FileDescriptor socket, Side side, std::string_view secret, std::size_t largest_message);

  int descriptor() const { return socket_.get(); }
  // True if the other end has proven that it knows the secret, so messages may come. (The side that dialled learns this
  // from the first message.)
  bool is_open() const { return open_; }
  // True if the other end has not sent a byte.
  bool is_untouched() const { return untouched_; }
  bool has_unsent() const { return !out_.empty(); }
  std::size_t unsent_bytes() const { return unsent_bytes_; }

  // Sends the message, or keeps it for flush().
  Result<posix::Delivery> send(ConstBytes message);
  // Sends a message that goes to many connections. It is neither copied nor hashed for each of them.
  Result<posix::Delivery> send(store::SharedMessage message);
  // Returns would_block if some bytes are left until the socket can be written to.
  posix::Delivery flush();
  // Also continues the handshake. An error says what is wrong with the other end; the caller then closes the
  // connection.
  Result<posix::Delivery> receive(Buffer& message);
  // True if this end dialled and the acceptor has refused its secret.
  bool was_refused() const { return refused_; }

 private:
  Digest seal(bool of_dialler, std::uint64_t number, const Digest& message) const;
  void derive_session(ConstBytes accepted, ConstBytes dialled);
  Result<bool> shake_hands();
  posix::Delivery read_more();
  std::size_t unread() const { return in_.size() - taken_; }
  ConstBytes take(std::size_t size);
  void queue(ConstBytes bytes);
  void forget(std::size_t sent);
  void queue_message(store::SharedMessage message);

  posix::FileDescriptor socket_;
  Side side_;
  std::string secret_;
  std::size_t largest_message_;
  Digest nonce_{};
  Digest session_{};
  bool shaken_ = false;  // true once the session key is known
  bool open_ = false;
  bool untouched_ = true;
  bool refused_ = false;
  std::uint64_t sent_messages_ = 0;
  std::uint64_t received_messages_ = 0;
  struct Outgoing {
    store::SharedMessage shared;  // a message that several connections share; used in place of `own`
    Buffer own;
    ConstBytes bytes() const { return shared != nullptr ? ConstBytes(shared->bytes) : ConstBytes(own); }
  };
  std::deque<Outgoing> out_;
  std::size_t sent_ = 0;  // number of bytes of the first message in out_ that were sent
  std::size_t unsent_bytes_ = 0;
  std::vector<store::SharedMessage> waiting_;  // messages that wait for the session key
  Buffer in_;
  std::size_t taken_ = 0;
};

}  // namespace hvd::bootstrap
