#include "connections/tcp/handshake.hpp"

#include <cstring>

#include "base/panic.hpp"
#include "bootstrap/meeting/meeting.hpp"
#include "native/posix/files/random.hpp"

namespace hvd::connections::tcp {
namespace {

constexpr std::uint64_t mark = 0x70637420'64766f48;  // the letters "Hovd tcp"

// These fields are equal in all versions, so that ranks of different releases can recognise each other.
struct Hello {
  std::uint64_t mark;
  std::uint32_t version;
  std::uint32_t unused;
  Digest random;
};
struct Answer {
  Hello hello;
  std::int32_t rank;
  std::uint32_t unused;
  Digest proof;
};
struct Introduction {
  std::int32_t rank;
  std::uint32_t unused;
  Digest name;
  Digest proof;
};
struct Verdict {
  Digest proof;
};
static_assert(sizeof(Hello) == 48 && sizeof(Answer) == 88 && sizeof(Introduction) == 72 && sizeof(Verdict) == 32);

enum Step : std::uint32_t { answer_step = 2, introduction_step = 3, verdict_step = 4 };

Digest draw_random() {
  Digest random;
  posix::draw_random(random);
  return random;
}

template <typename Message>
Message message_in(ConstBytes bytes) {
  Message message;
  std::memcpy(&message, bytes.data(), sizeof message);
  return message;
}

}  // namespace

Credentials::Credentials(const World& world)
    : secret(world.secret), job(sha256(as_bytes(world.job))), epoch(world.epoch), me(world.rank), size(world.size()) {}

Handshake::Handshake(const Credentials& credentials, Role role, Rank peer)
    : credentials_(&credentials), role_(role), peer_(peer) {}

Handshake Handshake::dial(const Credentials& credentials, Rank peer) {
  Handshake handshake(credentials, Role::dialer, peer);
  handshake.dialers_random_ = draw_random();
  ByteWriter(handshake.output_).put(Hello{mark, bootstrap::protocol_version, 0, handshake.dialers_random_});
  return handshake;
}

Handshake Handshake::accept(const Credentials& credentials) {
  return {credentials, Role::acceptor, Rank{-1}};
}

std::size_t Handshake::wanted() const {
  switch (state_) {
    case State::greeting:
      if (role_ == Role::dialer) return sizeof(Answer);
      return is_greeted_ ? sizeof(Introduction) : sizeof(Hello);
    case State::judged: return sizeof(Verdict);
    case State::introducing:
    case State::done:
    case State::refused: break;
  }
  return 0;
}

void Handshake::receive(ConstBytes message) {
  if (message.size() != wanted() || message.empty()) panic("a handshake was given bytes that it did not ask for");
  if (role_ == Role::acceptor) {
    is_greeted_ ? receive_introduction(message) : receive_hello(message);
  } else {
    state_ == State::greeting ? receive_answer(message) : receive_verdict(message);
  }
}

void Handshake::receive_hello(ConstBytes message) {
  auto hello = message_in<Hello>(message);
  if (hello.mark != mark) return refuse("it does not speak Horovod's protocol");
  dialers_random_ = hello.random;
  acceptors_random_ = draw_random();
  ByteWriter(output_).put(
      Answer{{mark, bootstrap::protocol_version, 0, acceptors_random_}, credentials_->me.value, 0, proof(answer_step)});
  if (hello.version != bootstrap::protocol_version) {
    refuse("it speaks protocol version " + std::to_string(hello.version) + ", this rank version " +
           std::to_string(bootstrap::protocol_version));
  }
  is_greeted_ = true;
}

void Handshake::receive_answer(ConstBytes message) {
  auto answer = message_in<Answer>(message);
  if (answer.hello.mark != mark) return refuse("something else than Horovod answers there");
  if (answer.hello.version != bootstrap::protocol_version) {
    return refuse("it speaks protocol version " + std::to_string(answer.hello.version) + ", this rank version " +
                  std::to_string(bootstrap::protocol_version) + ": all ranks must load the same release");
  }
  acceptors_random_ = answer.hello.random;
  // The proof must be that of the expected rank. The proof of any other rank is refused like a stranger's.
  if (!are_equal_secrets(answer.proof, proof(answer_step)))
    return refuse("another rank, another job or another start of this job answers there");
  state_ = State::introducing;
}

void Handshake::introduce(const Digest& name) {
  if (state_ != State::introducing) panic("a connection was introduced at the wrong time");
  name_ = name;
  ByteWriter(output_).put(Introduction{credentials_->me.value, 0, name_, proof(introduction_step)});
  state_ = State::judged;
}

void Handshake::receive_introduction(ConstBytes message) {
  auto introduction = message_in<Introduction>(message);
  peer_ = Rank{introduction.rank};
  name_ = introduction.name;
  if (!are_equal_secrets(introduction.proof, proof(introduction_step)) || peer_.value < 0 ||
      peer_.value >= credentials_->size) {
    peer_ = Rank{-1};
    return refuse("it could not prove that it belongs to this job");
  }
  ByteWriter(output_).put(Verdict{proof(verdict_step)});
  state_ = State::done;
}

void Handshake::receive_verdict(ConstBytes message) {
  if (!are_equal_secrets(message_in<Verdict>(message).proof, proof(verdict_step)))
    return refuse("it did not confirm the connection");
  state_ = State::done;
}

Digest Handshake::proof(std::uint32_t step) const {
  const bool is_dialer = role_ == Role::dialer;
  Buffer message;
  ByteWriter writer(message);
  writer.put(mark);
  writer.put(bootstrap::protocol_version);
  writer.put(step);
  writer.put(credentials_->job);
  writer.put(credentials_->epoch);
  writer.put(is_dialer ? peer_ : credentials_->me);  // the proof covers the acceptor's rank
  writer.put(dialers_random_);
  writer.put(acceptors_random_);
  if (step >= introduction_step) {
    writer.put(is_dialer ? credentials_->me : peer_);
    writer.put(name_);
  }
  return hmac_sha256(as_bytes(credentials_->secret), message);
}

void Handshake::refuse(std::string why) {
  state_ = State::refused;
  why_ = std::move(why);
}

}  // namespace hvd::connections::tcp
