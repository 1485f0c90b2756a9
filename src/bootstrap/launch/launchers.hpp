#pragma once
// What launchers are like: one row for each that is known. Who asks: what tells who launched this process (launch.hpp),
// the guard, the bootstraps, and of horovodrun its targets, the ranks' environment and --explain.
// A new launcher is a row here; if horovodrun is to drive it, a file in launcher/targets/ besides.
#include <initializer_list>
#include <span>
#include <string_view>

namespace hvd::bootstrap {

enum class Launcher { horovodrun, intel_mpi, hydra, jsm, open_mpi, mvapich, flux, pals, prrte, slurm, pmi };

// What a process that is one of its ranks is recognised by.
enum class Recognised {
  by_variables,   // the rank and all marks are set, and the number of ranks, unless there are marks
  by_pmi_server,  // a PMI server answers, and one of the marks is set; without marks: no other launcher's are
  by_pmix,        // PMIx alone tells, and not Slurm's
  by_slurm_step,  // the number of the step is one of tasks
  never,          // its ranks look like another launcher's
};

// The server that its ranks find.
enum class Serves {
  pmix,
  pmi,
  as_asked,  // what its command line asks for, which may be nothing
};

using Names = std::initializer_list<const char*>;

struct LauncherRow {
  Launcher launcher{};
  const char* name = "";          // for people
  const char* program = nullptr;  // its command, where that has a name of its own; null: it has none
  Names says{};                   // words that its command prints for --version
  Recognised recognised{};
  Names marks{};
  // Variables of its ranks; of several the first that is set counts.
  Names sizes{};                     // number of all ranks
  Names ranks{};                     // number of this one
  const char* nodes = nullptr;       // number of nodes; null: it does not tell
  const char* local_size = nullptr;  // number of ranks on this node; null: it does not tell
  Serves serves{};
  Names daemons{};  // names of its processes above a rank
  // What a rank gets from it, and a job that the rank starts must not see. "A_*" stands for all that begin with A_.
  Names traces{};
  Names traces_in_ranks{};  // likewise, under names that users set, too: of the launcher only inside of its ranks
  // What to type so that its ranks find each other, with "{size}" for their number; null: guard.cpp knows more.
  const char* remedy = nullptr;
};

// Innermost first, as far as one launcher is ever inside of another's job.
std::span<const LauncherRow> launchers();
const LauncherRow& row_of(Launcher launcher);

// Whether the launcher of some row may have set this variable.
bool is_trace_of_launcher(std::string_view variable);

}  // namespace hvd::bootstrap
