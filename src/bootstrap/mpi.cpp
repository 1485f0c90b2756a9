// Ranks of a world that the process has already: the program (mpi4py, a C program) has initialised its MPI. This
// bootstrap is asked first: the MPI has used the launcher's own server, and some launchers' servers answer only once.
#include <memory>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/mpi/over_communicator.hpp"

namespace hvd::bootstrap {

std::unique_ptr<Bootstrap> make_mpi() {
  return make_over_world();
}

}  // namespace hvd::bootstrap
