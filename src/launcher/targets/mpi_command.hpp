#pragma once
// Command lines of MPI launchers: Hydra (MPICH, Intel MPI), Open MPI up to 4, PRRTE (Open MPI from 5 on).
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/settings/environment.hpp"
#include "bootstrap/launch/launchers.hpp"
#include "launcher/job/site_launcher.hpp"
#include "launcher/options/hosts.hpp"

namespace hvd::launcher {

struct MpiProgram {
  std::string path;
  bootstrap::Launcher launcher = bootstrap::Launcher::hydra;  // the launcher: intel_mpi, hydra, open_mpi or prrte
  std::string says;                                           // the first line that it prints for --version
};

// Recognises a launcher by what it prints for --version. Returns nullopt if it is none of the four.
std::optional<bootstrap::Launcher> launcher_that_says(std::string_view version);
// Finds HOROVOD_MPIEXEC, or else the first of these along PATH: mpiexec, mpirun, then the names that only one launcher
// has.
Result<MpiProgram> find_mpiexec(const Environment& environment);

struct MpiexecOptions {
  int ranks = 1;
  std::vector<HostSlots> hosts;       // the hosts, each with as many slots as ranks; empty: the launcher chooses
  std::vector<std::string> exported;  // names of variables that go to other hosts
  std::string ssh;                    // the command in place of ssh; empty: ssh
  std::string ssh_port, ssh_identity_file;
  std::string interfaces;            // network interfaces, separated by commas
  std::vector<std::string> binding;  // options for binding; empty: ranks are not bound, and are placed by slot
  std::vector<std::string> more;     // more arguments of the user
  std::vector<std::string> command;
  bool is_root = false;
};
Result<SiteLauncher> mpi_command(const MpiProgram& program, const MpiexecOptions& options);

// Splits a text into words as a shell does, with quotes: `-x "a b"` are two words.
std::vector<std::string> split_words(std::string_view text);

}  // namespace hvd::launcher
