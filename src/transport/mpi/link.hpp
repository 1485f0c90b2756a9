#pragma once
// Messages between the seats of a group over an MPI communicator. Only the engine's thread uses it.
//
//  1. A message is one MPI message, or several of `piece_bytes` each if it is larger (MPI counts with 31 bits).
//  2. The tag is computed from the message's channel. There are fewer tags than channels, so distant channels share a
//     tag. Both ends then use these channels in the same order, and MPI keeps the order of messages of one tag.
//  3. poll() tests for the end of messages. This call also makes MPI progress. MPI wakes no thread: see
//     needs_polling().
//  4. After the last message has ended, MPI may still have bytes of it that a full socket did not take. Therefore the
//     link keeps calling MPI for a while.
#include <cstdint>
#include <memory>
#include <vector>

#include "native/mpi/plugin.hpp"
#include "transport/mpi/collectives.hpp"
#include "transport/mpi/under_way.hpp"
#include "transport/transport.hpp"

namespace hvd::transport::over_mpi {

constexpr std::size_t most_piece_bytes = std::size_t{1} << 30;

// Returns a tag from 0 to highest_tag for the channel.
int tag_of(Channel channel, int highest_tag) noexcept;

class MpiLink final : public Link {
 public:
  MpiLink(const Surroundings& surroundings, Group group, std::unique_ptr<mpi::Communicator> communicator,
          std::size_t piece_bytes = most_piece_bytes);
  ~MpiLink() override;

  const Group& group() const override { return group_; }
  Pending send(Seat to, ConstBytes bytes, Channel channel) override;
  Pending recv(Seat from, Bytes bytes, Channel channel) override;
  Progress poll(Pending pending) override;
  const Error& failure() const override { return failure_; }
  NativeCollectives* native() noexcept override { return &collectives_; }
  bool needs_polling() noexcept override;
  bool progresses_only_when_polled() noexcept override;
  // Cancels the receives. Waits for messages that a peer has begun to send. If such a message does not end, the process
  // is ended, because memory that was given back must not change any more. Collectives use memory of their own, which
  // stays with MPI.
  void abort(const Error& reason) noexcept override;

 private:
  struct Operation {
    enum class Kind : std::uint8_t { none, send, recv } kind = Kind::none;
    bool failed = false;
    Seat peer;
    std::size_t bytes = 0;
    std::size_t next = 0;  // the first request that has not ended
    std::vector<mpi::Request> requests;
  };

  std::uint32_t open(Operation::Kind kind, Seat peer, std::size_t bytes);
  template <typename Post>
  void post(std::uint32_t ticket, Post post_piece);
  Progress look_at(Operation& operation);
  std::size_t bytes_of_piece(const Operation& operation, std::size_t piece) const;
  void fail(Operation& operation, Error error);
  bool settle(Operation& operation);
  bool drain();

  const Surroundings surroundings_;
  const Group group_;
  std::unique_ptr<mpi::Communicator> communicator_;
  const std::size_t piece_bytes_;
  std::vector<Operation> operations_;  // the operation of each ticket
  std::vector<std::uint32_t> free_tickets_;
  UnderWay under_way_;
  int afterglow_ = 0;  // number of looks still to be made after the last message has ended
  bool aborted_ = false, is_at_rest_ = true;
  Error failure_{ErrorCode::shut_down, "the link was closed"};
  Collectives collectives_;
};

}  // namespace hvd::transport::over_mpi
