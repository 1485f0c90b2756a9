#pragma once
// The handshake of a TCP connection. The two ends prove to each other that they belong to the same start of the same
// job, and agree on the purpose of the connection. Bytes go in and bytes come out; there is no socket here.
//
// All messages have a fixed size and are read completely. Nothing in a message is used before its proof was checked.
//  1. dialer → acceptor  hello         mark, version, fresh random
//  2. acceptor → dialer  answer        mark, version, fresh random, its rank, its proof
//  3. dialer → acceptor  introduction  its rank, digest of the connection's name, its proof
//  4. acceptor → dialer  verdict       its proof; from now on those who asked for this name own the connection
// A proof is an HMAC-SHA-256 with the job's secret as its key. It covers the step's number and everything that both
// sides know by then: both randoms, job, epoch, version, ranks, name. So a proof has no value on another connection, in
// another step, in another job, or in another epoch of the same job.
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.hpp"
#include "base/checksums/sha256.hpp"
#include "base/world.hpp"

namespace hvd::connections::tcp {

// The values that this rank uses in all its handshakes.
struct Credentials {
  explicit Credentials(const World& world);
  std::string secret;
  Digest job;
  std::uint32_t epoch;
  Rank me;
  int size;
};

class Handshake {
 public:
  enum class State : std::uint8_t {
    greeting,     // the other end has proved nothing yet
    introducing,  // dialer: the other end has proved that it is the right rank; introduce() may follow
    judged,       // dialer: waits for the verdict
    done,
    refused,  // why() gives the reason
  };
  // Makes the end that connects. `credentials` must outlive it.
  static Handshake dial(const Credentials& credentials, Rank peer);
  // Makes the end that accepts.
  static Handshake accept(const Credentials& credentials);

  State state() const { return state_; }
  // Returns the size of the message that receive() needs next; 0 if it needs none.
  std::size_t wanted() const;
  // Takes a message of exactly wanted() bytes.
  void receive(ConstBytes message);
  // The dialer's third step, in the state `introducing`. receive() does not do this by itself, because only one of
  // several connections to a peer may introduce itself.
  void introduce(const Digest& name);
  // Returns the bytes that must be sent now, or nothing.
  Buffer take_output() { return std::exchange(output_, {}); }

  Rank peer() const { return peer_; }           // acceptor: valid when done
  const Digest& name() const { return name_; }  // acceptor: valid when done
  const std::string& why() const { return why_; }

 private:
  enum class Role : std::uint8_t { dialer, acceptor };
  Handshake(const Credentials& credentials, Role role, Rank peer);
  void receive_hello(ConstBytes message);
  void receive_answer(ConstBytes message);
  void receive_introduction(ConstBytes message);
  void receive_verdict(ConstBytes message);
  Digest proof(std::uint32_t step) const;
  void refuse(std::string why);

  const Credentials* credentials_;
  Role role_;
  State state_ = State::greeting;
  bool is_greeted_ = false;  // acceptor: the hello has come
  Rank peer_;                // acceptor: -1 until introduced
  Digest dialers_random_{}, acceptors_random_{}, name_{};
  Buffer output_;
  std::string why_;
};

}  // namespace hvd::connections::tcp
