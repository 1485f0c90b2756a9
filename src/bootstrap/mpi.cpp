// Ranks of a world that the process has already: the program (mpi4py, a C program) has initialised its MPI. The first
// to be asked, since the launcher's own server has been used by that MPI, and answers only once in some launchers.
#include <memory>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/mpi/over_communicator.hpp"

namespace hvd::bootstrap {

std::unique_ptr<Bootstrap> make_mpi() {
  return make_over_world();
}

}  // namespace hvd::bootstrap
