#pragma once
// What launchers are like, a row for each one that is known. The readers are the code that finds out who launched this
// process (launch.hpp), the guard, the bootstraps, and in horovodrun the targets, the ranks' environment and --explain.
// A new launcher is a row here; if horovodrun is to drive it, also a file in launcher/targets/.
#include <initializer_list>
#include <span>
#include <string_view>

namespace hvd::bootstrap {

enum class Launcher { horovodrun, intel_mpi, hydra, jsm, open_mpi, mvapich, flux, pals, prrte, slurm, pmi };

// How a process is recognised as one of its ranks.
enum class Recognised {
  by_variables,  // the rank and all marks are set; a row without marks: the number of ranks, too
  // A PMI server answers, and one of the marks is set; a row without marks: no mark of another launcher is.
  by_pmi_server,
  by_pmix,        // only PMIx tells, and the server is not Slurm's
  by_slurm_step,  // the number of the step is that of a step with tasks
  never,          // its ranks look like another launcher's
};

// The server that its ranks find.
enum class Serves {
  pmix,
  pmi,
  as_asked,  // as its command line asks, possibly none
};

using Names = std::initializer_list<const char*>;

struct LauncherRow {
  Launcher launcher{};
  const char* name = "";          // for people
  const char* program = nullptr;  // its command, if that has a name of its own; else null
  Names says{};                   // words that its command prints for --version
  Recognised recognised{};
  Names marks{};
  // Variables of its ranks; if several are set, the first one counts.
  Names sizes{};                     // number of all ranks
  Names ranks{};                     // number of this one
  const char* nodes = nullptr;       // number of nodes; null: it does not tell
  const char* local_size = nullptr;  // number of ranks on this node; null: it does not tell
  Serves serves{};
  Names daemons{};  // names of its processes above a rank
  // What a rank gets from it and a job that the rank starts must not see. "A_*" stands for all that begin with A_.
  Names traces{};
  // The same, but under names that users set, too: only inside of a rank they come from the launcher.
  Names traces_in_ranks{};
  // What to type so that its ranks find each other, with "{size}" for their number. Null: guard.cpp finds it out.
  const char* remedy = nullptr;
};

// Innermost first, as far as one launcher ever runs inside of another's job.
std::span<const LauncherRow> launchers();
const LauncherRow& row_of(Launcher launcher);

// Whether the launcher of some row may have set this variable.
bool is_trace_of_launcher(std::string_view variable);

}  // namespace hvd::bootstrap
