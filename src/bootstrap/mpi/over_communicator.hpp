#pragma once
// A bootstrap over the processes of a communicator: their ranks are the ranks, and values travel by MPI's own
// collectives at the fence. Needs no thread level of MPI's beyond the calling thread's right to call it.
#include <memory>
#include <span>

#include "base/environment.hpp"
#include "bootstrap/selection/selection.hpp"
#include "native/mpi/process.hpp"

namespace hvd::bootstrap {

// A communicator of ours, with the life of whoever holds it: the last one frees it, all ranks at the same point of
// their programs, or leaves it when peers are gone.
std::shared_ptr<mpi::Communicator> shared(std::unique_ptr<mpi::Communicator> communicator);

// What init was asked for instead of all processes of the launch.
struct Members {
  const void* mpi_communicator = nullptr;  // address of an MPI_Comm
  std::size_t handle_bytes = 0;            // sizeof(MPI_Comm)
  std::span<const int> ranks;              // or: of MPI_COMM_WORLD, in the order of the new ranks
};

// Blocking and collective over the members. Starts MPI if nobody has.
Result<std::shared_ptr<mpi::Communicator>> communicator_of(const Members& members, const Environment& environment,
                                                           const Config& config);

// Over a copy of MPI_COMM_WORLD, made by join().
std::unique_ptr<Bootstrap> make_over_world();

// Blocking and collective over the communicator.
Result<Chosen> over_communicator(std::shared_ptr<mpi::Communicator> communicator, const Environment& environment,
                                 const Config& config);

}  // namespace hvd::bootstrap
