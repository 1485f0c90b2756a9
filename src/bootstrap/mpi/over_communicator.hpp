#pragma once
// A bootstrap over the processes of a communicator: the ranks of the communicator are the ranks of the job. At the
// fence, values travel by MPI's own collectives. The bootstrap needs no thread level of MPI, but the calling thread
// must be allowed to call MPI.
#include <memory>
#include <span>

#include "base/settings/environment.hpp"
#include "bootstrap/selection/selection.hpp"
#include "native/mpi/process.hpp"

namespace hvd::bootstrap {

// Shares a communicator that belongs to us. The last holder frees it. All ranks do this at the same point of their
// programs. If peers are lost, the communicator stays allocated.
std::shared_ptr<mpi::Communicator> shared(std::unique_ptr<mpi::Communicator> communicator);

// The processes that the caller of init named. They take the place of all processes of the launch.
struct Members {
  const void* mpi_communicator = nullptr;  // address of an MPI_Comm
  std::size_t handle_bytes = 0;            // sizeof(MPI_Comm)
  std::span<const int> ranks;              // instead of a communicator: ranks of MPI_COMM_WORLD, in the order of the
                                           // new ranks
};

// Blocking and collective over the members. Starts MPI if MPI does not run yet.
Result<std::shared_ptr<mpi::Communicator>> communicator_of(const Members& members, const Environment& environment,
                                                           const Config& config);

// Makes a bootstrap over a copy of MPI_COMM_WORLD; join() makes the copy.
std::unique_ptr<Bootstrap> make_over_world();

// Makes a bootstrap over this communicator and joins. Blocking and collective over the communicator.
Result<Chosen> over_communicator(std::shared_ptr<mpi::Communicator> communicator, const Environment& environment,
                                 const Config& config);

}  // namespace hvd::bootstrap
