#pragma once
// A table of the known launchers, one row for each. These read it: the code that finds out who launched this process
// (launch.hpp), the guard, the bootstraps, and in horovodrun the targets, the ranks' environment and --explain. A new
// launcher needs a row here. If horovodrun is to drive it, it also needs a file in launcher/targets/.
#include <initializer_list>
#include <span>
#include <string_view>

namespace hvd::bootstrap {

enum class Launcher { horovodrun, torchrun, intel_mpi, hydra, jsm, open_mpi, mvapich, flux, pals, prrte, slurm, pmi };

// How a process is recognised as a rank of this launcher.
enum class Recognised {
  by_variables,  // rank and all marks are set; in a row without marks the number of ranks, too
  // A PMI server answers, and one of the marks is set. In a row without marks: no mark of another launcher is set.
  by_pmi_server,
  by_pmix,        // only a PMIx server shows it, and this server is not Slurm's
  by_slurm_step,  // the number of the Slurm step shows that the step has tasks
  never,          // its ranks look like those of another launcher, so they are recognised by that launcher's row
};

// The kind of server that the launcher's ranks find.
enum class Serves {
  pmix,
  pmi,
  as_asked,  // what it serves depends on the launcher's command line; possibly nothing
  nothing,
};

using Names = std::initializer_list<const char*>;

struct LauncherRow {
  Launcher launcher{};
  const char* name = "";          // the launcher's name for people
  const char* program = nullptr;  // the launcher's command, if only this launcher has a command of that name; else null
  Names says{};                   // words that the launcher's command prints for --version
  Recognised recognised{};
  Names marks{};
  // Variables of its ranks. If several of them are set, the first one counts.
  Names sizes{};  // variables with the number of all ranks
  Names ranks{};  // variables with the number of this rank
  // Variables that differ from one launch to the next, whatever the rank: its name, or how its server is reached. By
  // them and `ranks` a child of a rank finds out whether it belongs to another launch (owner.hpp).
  Names of_launch{};
  Names local_ranks{};               // variables with the number of this rank among those of its node
  const char* nodes = nullptr;       // variable with the number of nodes; null if the launcher does not tell
  const char* local_size = nullptr;  // variable with the number of ranks on this node; null if the launcher does not
                                     // tell
  Serves serves{};
  Names daemons{};  // names of the launcher's processes above a rank
  // Variables that the launcher sets in a rank and that a job which the rank starts must not see. "A_*" stands for all
  // names that begin with A_.
  Names traces{};
  // More such variables, whose names users set, too. Only inside a rank do they come from the launcher.
  Names traces_in_ranks{};
  // The command and flags with which it does not bind ranks to processors; null if it never binds them, or if that is
  // not known.
  const char* flags_to_unbind = nullptr;
  // What the user has to type so that the ranks find each other, with "{size}" for their number. If it is null,
  // guard.cpp finds it out.
  const char* remedy = nullptr;
};

// The rows in order, innermost launcher first: a launcher that runs inside another one's job comes before that other
// launcher.
std::span<const LauncherRow> launchers();
const LauncherRow& row_of(Launcher launcher);

// True if `variable` is one of the row's traces.
bool is_trace_of(const LauncherRow& row, std::string_view variable);

// True if the launcher of some row may have set this variable.
bool is_trace_of_launcher(std::string_view variable);

}  // namespace hvd::bootstrap
