#pragma once
// horovodrun --preflight: checks the whole allocation before a job is started in it.
#include <span>
#include <string>

#include "launcher/targets/target.hpp"

namespace hvd::launcher::preflight {

inline constexpr int fault_found = 3;  // exit code of horovodrun

struct Outcome {
  std::string text;  // a page for people, or JSON
  bool has_fault = false;
};

// Runs a second horovodrun with the same flags, which starts a probe instead of each rank of the request. Waits at most
// half a minute for the results of the probes. `arguments` are those of horovodrun, without its name and without the
// user's command.
Result<Outcome> run(const JobRequest& request, std::span<const char* const> arguments, bool as_json);

}  // namespace hvd::launcher::preflight
