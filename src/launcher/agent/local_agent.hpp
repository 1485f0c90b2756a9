#pragma once
// The agent of this machine, which is a fork of horovodrun.
#include <sys/types.h>

#include "launcher/agent/agent.hpp"

namespace hvd::launcher {

struct LocalAgent {
  pid_t process = 0;
  AgentChannel channel;
};
// The agent gets our standard input if one of its ranks is to read it. It does not get a terminal: only horovodrun
// reads that (input_relay.hpp). The caller has a single thread. In the agent this function does not return.
Result<LocalAgent> start_local_agent(const AgentSettings& settings, bool gets_input);

}  // namespace hvd::launcher
