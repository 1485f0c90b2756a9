#pragma once
// The process on each host that starts the ranks, relays their output and reports their ends. It has a session of its
// own and a single thread, is the parent of the ranks and adopts what they leave behind. It ends them all when
// horovodrun is done or gone, however that happened.
#include <chrono>
#include <optional>
#include <string>

#include "base/environment.hpp"
#include "base/result.hpp"
#include "launcher/agent/rank_process.hpp"
#include "launcher/wire/channel.hpp"

namespace hvd::launcher {

struct AgentSettings {
  std::string session_folder;       // removed when horovodrun is gone; empty: none
  Inheritance inheritance;          // what the ranks shall start with
  std::chrono::milliseconds grace;  // between the first signal and SIGKILL when horovodrun is gone
  // Becomes readable when the agent is to end as if horovodrun were gone; -1: nobody can ask for that.
  int leash = -1;
  // On another host: what the ranks get besides what horovodrun sends them.
  std::optional<Environment> own_environment{};
};

// Serves the stream until it is dismissed, or until the other end is gone and nothing is left to end.
// Call it in the agent's own process. Returns the exit code.
int run_agent(HorovodrunChannel channel, const AgentSettings& settings);

}  // namespace hvd::launcher
