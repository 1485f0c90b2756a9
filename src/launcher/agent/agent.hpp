#pragma once
// The agent is the process on each host that starts the ranks, relays their output and reports their ends. It has a
// session of its own and a single thread. It is the parent of the ranks and adopts the processes that they leave
// behind. It ends all of them when horovodrun is done or gone, for whatever reason.
#include <chrono>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "base/settings/environment.hpp"
#include "launcher/agent/rank_process.hpp"
#include "launcher/wire/channel.hpp"

namespace hvd::launcher {

struct AgentSettings {
  std::string session_folder;       // removed when horovodrun is gone; empty: no folder
  Inheritance inheritance;          // the settings with which ranks start
  std::chrono::milliseconds grace;  // time between the first signal and SIGKILL when horovodrun is gone
  // A descriptor that becomes readable when the agent is to end as if horovodrun were gone. -1: there is none.
  int leash = -1;
  // On another host: the variables that the ranks get besides those that horovodrun sends.
  std::optional<Environment> own_environment{};
};

inline constexpr int exit_code_if_horovodrun_is_lost = 76;

// Serves the stream until the agent is dismissed, or until the other end is gone and nothing is left to end. Call it in
// the agent's own process. Returns the exit code.
int run_agent(HorovodrunChannel channel, const AgentSettings& settings);

}  // namespace hvd::launcher
