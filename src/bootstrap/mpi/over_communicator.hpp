#pragma once
// A bootstrap over the processes of a communicator: their ranks are the ranks, and values travel by MPI's own
// collectives at the fence. It needs no thread level of MPI; the calling thread must be allowed to call MPI.
#include <memory>
#include <span>

#include "base/environment.hpp"
#include "bootstrap/selection/selection.hpp"
#include "native/mpi/process.hpp"

namespace hvd::bootstrap {

// A communicator of ours. It lives as long as somebody holds it: the last holder frees it, which all ranks do at the
// same point of their programs, or leaves it allocated if peers are lost.
std::shared_ptr<mpi::Communicator> shared(std::unique_ptr<mpi::Communicator> communicator);

// The processes that init was asked for, in place of all processes of the launch.
struct Members {
  const void* mpi_communicator = nullptr;  // address of an MPI_Comm
  std::size_t handle_bytes = 0;            // sizeof(MPI_Comm)
  std::span<const int> ranks;              // or: ranks of MPI_COMM_WORLD, in the order of the new ranks
};

// Blocking and collective over the members. Starts MPI if it does not run.
Result<std::shared_ptr<mpi::Communicator>> communicator_of(const Members& members, const Environment& environment,
                                                           const Config& config);

// Over a copy of MPI_COMM_WORLD that join() makes.
std::unique_ptr<Bootstrap> make_over_world();

// Blocking and collective over the communicator.
Result<Chosen> over_communicator(std::shared_ptr<mpi::Communicator> communicator, const Environment& environment,
                                 const Config& config);

}  // namespace hvd::bootstrap
