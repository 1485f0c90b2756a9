#pragma once
// Finds the launcher that started this process together with others, as far as the environment tells. Launchers may be
// nested: an mpiexec may run inside a Slurm step, and its ranks inherit the step's variables. The innermost launcher
// counts.
#include <optional>
#include <string>

#include "base/settings/environment.hpp"
#include "bootstrap/launch/launchers.hpp"

namespace hvd::bootstrap {

struct Launch {
  Launcher launcher = Launcher::slurm;
  const char* name = "";  // the launcher's name for people: "srun"
  int size = 1;           // processes that were started together; 0 if the environment does not say
  int rank = 0;           // -1 if the environment does not say
  std::string evidence;   // what shows that there is a launch: "SLURM_STEP_NUM_TASKS=4"
};

// True if the descriptor is a socket of this process. If PMI_FD names no socket, the variable was inherited from an
// outer launcher.
using IsSocket = bool (*)(int descriptor);
bool is_socket_of_this_process(int descriptor);

// Returns nullopt for a process that no launcher started: a login shell, a batch script, the interactive shell of an
// allocation.
std::optional<Launch> innermost_launch(const Environment& environment, IsSocket is_socket = &is_socket_of_this_process);

// True if a PMI-1 server answers this process (pmi.cpp).
bool has_pmi_server(const Environment& environment, IsSocket is_socket = &is_socket_of_this_process);

// True if the launcher may have put ranks on several nodes. Every rank gets the same answer.
bool may_span_nodes(const Launch& launch, const Environment& environment);

}  // namespace hvd::bootstrap
