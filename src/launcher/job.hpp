#pragma once
// One job on this machine, from start to end.
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "launcher/hosts.hpp"
#include "launcher/output.hpp"

namespace hvd::launcher {

struct JobOptions {
  std::string program;               // path to execute
  std::vector<std::string> command;  // as the user gave it
  std::vector<Placement> placements;
  std::map<std::string, std::string> variables;  // that flags set for the ranks
  PrinterOptions printer;
  bool verbose = false;
  std::chrono::milliseconds grace{5000};  // between the first signal and SIGKILL
};

// How horovodrun shall end: with a code, or by a signal sent to itself, so that a shell that waits for it knows.
struct JobEnd {
  int exit_code = 0;
  int by_signal = 0;
};

// Runs until nothing of the job is left: no process, no file. The caller has a single thread; from here on SIGPIPE is
// ignored.
JobEnd run_job(const JobOptions& options, const Environment& environment);

}  // namespace hvd::launcher
