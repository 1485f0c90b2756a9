#pragma once
// The environment that a rank starts with.
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "launcher/agent/binding.hpp"
#include "launcher/options/hosts.hpp"
#include "launcher/wire/messages.hpp"

namespace hvd::launcher {

// `own` without what another launcher (or a horovodrun around this one) said about our place in its job. A rank must
// not take that place for its own.
Environment without_traces_of_launchers(const Environment& own);
// Does the same to this process's own environment, which libraries read by themselves. The process has a single
// thread.
void drop_traces_of_launchers();

struct RankVariables {
  Placement placement;
  int size = 1;
  std::map<std::string, std::string> from_flags;
  std::vector<std::pair<std::string, std::string>> wire_up;
};
// Lines NAME=value.
std::vector<std::string> environment_of(const Environment& cleaned, const RankVariables& variables);

// `own` without what is about this host, this session or this terminal: what ranks on other hosts can use.
Environment exportable(const Environment& own);

// What only the agent knows: OMP_NUM_THREADS where the user has not set it; on another host, its own variables where
// horovodrun sent none of that name.
void complete_environment(StartRank& order, const Share& share, const std::optional<Environment>& own);
// For MPI programs (bridge_preload.hpp); order.program is the file that is executed.
void add_bridge(StartRank& order);
// The value of PATH.
std::string path_of(const std::vector<std::string>& lines);

}  // namespace hvd::launcher
