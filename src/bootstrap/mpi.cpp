// The bootstrap of ranks that the program's MPI already connects: the program (mpi4py, a C program) has initialised
// MPI. This bootstrap is asked first, because that MPI has already used the launcher's server, and some launchers'
// servers answer only once.
#include <memory>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/mpi/over_communicator.hpp"

namespace hvd::bootstrap {

std::unique_ptr<Bootstrap> make_mpi() {
  return make_over_world();
}

}  // namespace hvd::bootstrap
