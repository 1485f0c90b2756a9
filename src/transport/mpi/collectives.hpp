#pragma once
// MPI's own non-blocking collectives for the lists of segments that ours work on.
//
// A batch goes through in steps of some megabytes, two at once: packed (and prescaled) into memory of the task, given
// to MPI there, unpacked (and postscaled) from there. So a link that is aborted has nothing of the caller's in MPI's
// hands, and any number of elements passes through counts of 31 bits.
//
// All seats make the same steps. An alltoall's seats know only their own numbers: while the first step is under way
// they agree on the most that any of them needs, by an allreduce that was started before it.
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "native/mpi/plugin.hpp"
#include "transport/mpi/under_way.hpp"
#include "transport/transport.hpp"

namespace hvd::transport::over_mpi {

// Larger batches go through in steps.
constexpr std::size_t default_step_bytes = std::size_t{4} << 20;

class Collectives final : public NativeCollectives {
 public:
  Collectives(mpi::Communicator& communicator, const mpi::MpiPlugin& calls, int ranks_per_node,
              std::size_t step_bytes = default_step_bytes);

  Cost cost(const Collective& collective) const override;
  std::unique_ptr<Task> plan(const Collective& collective) override;

  const UnderWay& under_way() const { return under_way_; }
  // Whether something came back since the last call.
  bool has_just_ended() { return std::exchange(has_ended_, false); }
  // Every task fails from now on. What is in MPI's hands stays there, with its memory. True if there was any.
  bool abandon(const Error& reason);

 private:
  friend class CollectiveTask;
  mpi::Communicator& communicator_;
  const mpi::MpiPlugin& calls_;
  const int ranks_per_node_;
  const std::size_t step_bytes_;
  // MPI matches collectives in the order in which they are started, so the tasks take turns.
  std::uint64_t next_turn_ = 0, serving_ = 0;
  UnderWay under_way_;
  bool has_ended_ = false;
  std::optional<Error> aborted_;
};

}  // namespace hvd::transport::over_mpi
