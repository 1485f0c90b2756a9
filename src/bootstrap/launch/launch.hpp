#pragma once
// Who started this process as one of how many, as far as the environment tells: of several launchers around one another
// (an mpiexec inside of a Slurm step, whose variables its ranks inherit) the innermost.
#include <optional>
#include <string>

#include "base/environment.hpp"
#include "bootstrap/launch/launchers.hpp"

namespace hvd::bootstrap {

struct Launch {
  Launcher launcher = Launcher::slurm;
  const char* name = "";  // for people: "srun"
  int size = 1;           // processes that were started together; 0 if the environment does not say
  int rank = 0;           // -1 if it does not say
  std::string evidence;   // "SLURM_STEP_NUM_TASKS=4"
};

// Whether a descriptor is a socket of this process. A PMI_FD that is none was inherited from a launcher further out.
using IsSocket = bool (*)(int descriptor);
bool is_socket_of_this_process(int descriptor);

// Nothing for a process that no launcher started: a login shell, a batch script, an interactive shell of a job.
std::optional<Launch> innermost_launch(const Environment& environment, IsSocket is_socket = &is_socket_of_this_process);

// Whether there is somebody who answers PMI-1 (pmi.cpp).
bool has_pmi_server(const Environment& environment, IsSocket is_socket = &is_socket_of_this_process);

// Whether the launcher may have put ranks on several nodes. Every rank gets the same answer.
bool may_span_nodes(const Launch& launch, const Environment& environment);

}  // namespace hvd::bootstrap
