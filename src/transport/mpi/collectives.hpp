#pragma once
// MPI's own non-blocking collectives, for lists of segments.
//
// A batch is processed in steps of some megabytes, two of them at the same time. A step's data are packed and prescaled
// into memory of the task, MPI works in that memory, and the result is unpacked and postscaled from there. So MPI never
// holds memory of the caller when a link is aborted, and any number of elements works although MPI counts with 31 bits.
//
// All seats make the same number of steps. In an alltoall each seat knows only its own numbers. Therefore an allreduce
// is started before the first step. While the first step is under way, the seats agree by it on the largest number of
// steps that a seat needs.
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "native/mpi/plugin.hpp"
#include "transport/mpi/under_way.hpp"
#include "transport/transport.hpp"

namespace hvd::transport::over_mpi {

// Larger batches are processed in steps of this size.
constexpr std::size_t default_step_bytes = std::size_t{4} << 20;

class Collectives final : public NativeCollectives {
 public:
  Collectives(mpi::Communicator& communicator, const mpi::MpiPlugin& calls, int ranks_per_node,
              std::size_t step_bytes = default_step_bytes);

  Cost cost(const Collective& collective) const override;
  std::unique_ptr<Task> plan(const Collective& collective) override;

  const UnderWay& under_way() const { return under_way_; }
  // Returns true if an MPI call has ended since the last call of this function.
  bool has_just_ended() { return std::exchange(has_ended_, false); }
  // Makes every task fail from now on. Calls that are under way stay with MPI, and so does their memory. Returns true
  // if there were any.
  bool abandon(const Error& reason);

 private:
  friend class CollectiveTask;
  mpi::Communicator& communicator_;
  const mpi::MpiPlugin& calls_;
  const int ranks_per_node_;
  const std::size_t step_bytes_;
  // MPI matches collectives by the order of their starts. Therefore the tasks run one after the other.
  std::uint64_t next_turn_ = 0, serving_ = 0;
  UnderWay under_way_;
  bool has_ended_ = false;
  std::optional<Error> aborted_;
};

}  // namespace hvd::transport::over_mpi
