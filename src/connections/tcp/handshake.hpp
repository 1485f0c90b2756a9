#pragma once
// How the two ends of a TCP connection prove to each other that they belong to the same start of the same job, and
// agree on what the connection is for. Bytes in, bytes out: no socket in here.
//
// All messages have a fixed size and are read whole; nothing in them is used before its proof was found right.
//  1. dialer → acceptor  hello         mark, version, fresh random
//  2. acceptor → dialer  answer        mark, version, fresh random, its rank, its proof
//  3. dialer → acceptor  introduction  its rank, digest of the connection's name, its proof
//  4. acceptor → dialer  verdict       its proof: from here on the connection belongs to those who asked for it by name
// A proof is the HMAC-SHA-256, keyed with the job's secret, of the step's number and everything that both sides know by
// then: both randoms, job, epoch, version, ranks, name. So a proof is worth nothing on another connection, in another
// step, in another job, or in another epoch of the same job.
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "base/world.hpp"

namespace hvd::connections::tcp {

// What this rank's end has in all its handshakes.
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
    greeting,     // the other end has shown nothing yet
    introducing,  // dialer: the other end is who it should be; introduce() may follow
    judged,       // dialer: waits for the verdict
    done,
    refused,  // why() says what was wrong
  };
  // The end that connects. `credentials` outlive it.
  static Handshake dial(const Credentials& credentials, Rank peer);
  // The end that is connected to.
  static Handshake accept(const Credentials& credentials);

  State state() const { return state_; }
  // Bytes of the next message that receive() waits for; 0: none.
  std::size_t wanted() const;
  // Exactly so many bytes.
  void receive(ConstBytes message);
  // The dialer's third step, in `introducing`. Not left to receive(): of several connections to a peer only one may
  // get so far.
  void introduce(const Digest& name);
  // What has to be sent now; empty if nothing has.
  Buffer take_output() { return std::exchange(output_, {}); }

  Rank peer() const { return peer_; }           // acceptor: once done
  const Digest& name() const { return name_; }  // acceptor: once done
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
