#pragma once
// The launcher that started this process as one of several, as far as the environment tells. Launchers may be nested
// (an mpiexec inside of a Slurm step, whose variables its ranks inherit): the innermost counts.
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

// Whether a descriptor is a socket of this process. If PMI_FD names no socket, it was inherited from an outer launcher.
using IsSocket = bool (*)(int descriptor);
bool is_socket_of_this_process(int descriptor);

// Nothing for a process that no launcher started: a login shell, a batch script, the interactive shell of an
// allocation.
std::optional<Launch> innermost_launch(const Environment& environment, IsSocket is_socket = &is_socket_of_this_process);

// Whether a PMI-1 server answers (pmi.cpp).
bool has_pmi_server(const Environment& environment, IsSocket is_socket = &is_socket_of_this_process);

// Whether the launcher may have put ranks on several nodes. Every rank gets the same answer.
bool may_span_nodes(const Launch& launch, const Environment& environment);

}  // namespace hvd::bootstrap
