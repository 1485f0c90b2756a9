#pragma once
// The environment that a rank starts with.
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/settings/environment.hpp"
#include "launcher/agent/binding.hpp"
#include "launcher/options/hosts.hpp"
#include "launcher/wire/messages.hpp"

namespace hvd::launcher {

// Returns `own` without what another launcher (or a horovodrun around this one) said about our place in that launcher's
// job. A rank must not take that place for its own.
Environment without_traces_of_launchers(const Environment& own);
// Removes the same variables from this process's own environment, which libraries read by themselves. The process has a
// single thread.
void drop_traces_of_launchers();

struct RankVariables {
  Placement placement;
  int size = 1;
  std::map<std::string, std::string> from_flags;
  std::vector<std::pair<std::string, std::string>> wire_up;
};
// Returns lines NAME=value.
std::vector<std::string> environment_of(const Environment& cleaned, const RankVariables& variables);

// Returns `own` without variables about this host, this session or this terminal. Ranks on other hosts can use the
// rest.
Environment exportable(const Environment& own);

// Adds what only the agent knows: OMP_NUM_THREADS if the user has not set it. On another host it also adds the host's
// own variables that horovodrun did not send.
void complete_environment(StartRank& order, const Share& share, const std::optional<Environment>& own);
// Adds the bridge for MPI programs (bridge_preload.hpp). order.program is the file that is executed.
void add_bridge(StartRank& order);
// Returns the value of PATH.
std::string path_of(const std::vector<std::string>& lines);

}  // namespace hvd::launcher
